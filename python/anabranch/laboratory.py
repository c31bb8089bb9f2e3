"""Runs in real kernels: what agents, which are processes of their own, need of this one."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import _engine
from .agent import errors_of
from .errors import MissingError, SchedulerError, UsageError
from .own import Own
from .study import Study


class Agents:
    """How agents are started, and what they have to tell."""

    def __init__(self, file: Path) -> None:
        self._file = file
        # Where this process finds its modules, an agent finds those of schedulers.
        places = os.pathsep.join(os.path.abspath(place) for place in sys.path)
        python = [sys.executable, "-m", "anabranch.agent", os.fspath(file)]
        #: Their command line.
        self.command = ["env", f"PYTHONPATH={places}", *python]

    def raised(self) -> str | None:
        """The traceback of an exception that a scheduler or controller raised in an agent."""
        with contextlib.suppress(OSError):
            return errors_of(self._file).read_text(encoding="utf-8")
        return None

    def check(self, study: Study) -> None:
        """Raises a `SchedulerError` for it, if there is one."""
        traceback = self.raised()
        if traceback is None:
            return
        error = SchedulerError(f"in a host of its own: {traceback.strip().splitlines()[-1]}")
        error.add_note(traceback)
        error.study = study
        raise error


@contextlib.contextmanager
def agents(own: Sequence[Own]) -> Iterator[Agents]:
    """Agents that know these schedulers and controllers.

    Raises:
        UsageError: this machine has no network namespaces, or this user may not make them.
        MissingError: there is no cloudpickle, which takes classes of a script to other processes.
    """
    lacking = _engine.laboratory_lacks()
    if lacking is not None:
        found, remedy = lacking
        raise UsageError(f"backend=\"netns\" cannot be used here: {found}; {remedy}")
    _engine.clean_laboratories()
    folder = Path(tempfile.mkdtemp(prefix="anabranch-"))
    try:
        file = folder / "own.pickle"
        file.write_bytes(_pickled(own))
        yield Agents(file)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _pickled(own: Sequence[Own]) -> bytes:
    try:
        import cloudpickle
    except ImportError as error:
        what = 'backend="netns" needs a package: pip install cloudpickle'
        raise MissingError(what) from error
    data: bytes = cloudpickle.dumps(list(own))
    return data
