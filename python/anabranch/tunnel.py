"""What tunnels on this machine do. Only questions are asked; nothing is changed."""

from __future__ import annotations

import json
import os
from typing import Any

from . import _engine


def status(control: str | os.PathLike[str] | None = None) -> list[dict[str, Any]]:
    """What each end of a tunnel does, as ``anabranch tunnel status --json`` tells it
    (docs/json.md): its clients, paths, flows and rates. It takes about a second.

    Args:
        control: the control socket of one; all of this user if None.

    Raises:
        TransferError: no end of a tunnel runs here, or it does not answer.
    """
    asked = None if control is None else os.fspath(control)
    return [json.loads(text) for text in _engine.tunnels(asked)]
