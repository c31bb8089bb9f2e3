"""One host of a laboratory, as a process: ``python -m anabranch.agent FILE``.

The laboratory starts it in a network namespace. The file has the schedulers and controllers that
jobs may name. Requests come on standard input and answers go to standard output, so what they print
goes to standard error.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from . import _engine, watching


def main() -> None:
    """Serves the laboratory until its input ends."""
    file = Path(sys.argv[1])
    sys.stdout = sys.stderr
    own = pickle.loads(file.read_bytes())
    if own:
        watching.begin()
    _engine.serve_agent(own, errors_of(file))


def errors_of(file: Path) -> Path:
    """Where an agent writes what a scheduler or controller of this file raised."""
    return file.with_suffix(".error")


if __name__ == "__main__":
    main()
