"""Ends decisions on real connections that take too long.

The engine waits for a scheduler's answer, and whoever asks the connection waits for the engine. A
scheduler that loops would stop all of them for ever.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import time

from . import _engine
from .errors import SlowDecision

#: How long a decision may take, in seconds.
LIMIT = 2.0
#: How often decisions are looked at, in seconds.
STEP = 0.25


@functools.cache
def begin() -> threading.Thread:
    """Watches from now on, as long as the program runs."""
    thread = threading.Thread(target=_watch, name="anabranch-decisions", daemon=True)
    thread.start()
    return thread


def _watch() -> None:
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    while True:
        time.sleep(STEP)
        for thread in _engine.overdue(LIMIT):
            raise_in(ctypes.c_ulong(thread), ctypes.py_object(SlowDecision))
