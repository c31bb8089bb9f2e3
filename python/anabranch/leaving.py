"""The end of a program that had connections.

Threads of the engine come into the interpreter: to ask a scheduler, or to wake an event loop. One
that is there while the interpreter ends would be ended by it, in the middle of what it does, and
take the whole process along.
"""

from __future__ import annotations

import atexit
import functools
import sys
import threading
import time

from . import _engine

#: How long a thread may take to leave, in seconds. One that waits for something else stays.
PATIENCE = 2.0
#: How often it is looked, in seconds: a thread that waits for its turn has come in meanwhile.
STEP = 0.001
#: How often in a row nobody may be found.
TIMES = 3


@functools.cache
def prepare() -> None:
    """Takes care of the end of this program."""
    atexit.register(_settle)


def _settle() -> None:
    _engine.ask_no_more()
    until = time.monotonic() + PATIENCE
    quiet = 0
    while quiet < TIMES and time.monotonic() < until:
        time.sleep(STEP)
        quiet = 0 if _strangers() else quiet + 1


def _strangers() -> bool:
    """Whether a thread is in the interpreter that Python has not made."""
    # Those that asked for their name count as known: they have a stand-in.
    stand_in = threading._DummyThread
    own = {one.ident for one in threading.enumerate() if not isinstance(one, stand_in)}
    return not own.issuperset(sys._current_frames())
