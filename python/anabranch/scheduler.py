"""Schedulers written in Python, and asking them without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from . import _engine
from ._engine import Choice, PathEvent, SendView
from .own import own
from .policy import PolicyTable


class Scheduler:
    """Decides which path carries what is sent next. Subclass it and write ``select``.

    One object is made for each connection, by calling the class without arguments, so it may
    keep what it learns in attributes. ``select`` is called once for each packet (or chunk), and
    only while something waits to be sent. The engine enforces windows, pacing and validation on
    every answer: a scheduler can be slow, never unsafe.

    >>> class Cheapest(Scheduler):
    ...     def select(self, view):
    ...         key = lambda p: (p.cost, p.smoothed_rtt)
    ...         path = min(view.ready, key=key, default=None)
    ...         return view.send(path, "cheapest") if path else view.hold()
    >>> ask(Cheapest, paths=[{"cost": 3}, {"cost": 1}])
    Decision(kind='send', paths=(1,), reason='cheapest')

    A method ``on_event(self, event)``, if there is one, hears of every packet that was sent,
    acknowledged or lost, and of paths that come and go; see `PathEvent`. It costs a call each.

    Where a call for each packet is too much, ``chunk`` lets one decision cover more, and
    ``view.sequence`` decides about many packets at once.

    An answer that cannot be (no answer of the view, a path that is full or gone) counts as a
    hold. An exception ends the run and is raised as `SchedulerError`, with the virtual time.
    """

    #: Whether ``view.copy`` is ever answered. Only then is the question worth its cost.
    wants_copies: bool = False
    #: Whether copies are also made while fresh data waits; as ``wants_copies`` if None.
    wants_copies_while_busy: bool | None = None
    #: Whether copies are also made while flow control or the send buffer stops fresh data
    #: (``view.backlog.blocked``); as ``wants_copies_while_busy`` if None.
    wants_copies_while_blocked: bool | None = None
    #: Whether ``view.streams`` is looked at. Only then is it filled.
    wants_streams: bool = False
    #: How much one decision covers, such as ``"64kB"``; a packet if None.
    chunk: str | None = None

    def select(self, view: SendView) -> Choice:
        """Where the next unit goes: ``view.send(path, "why")``, ``view.hold()`` and others.

        ``view`` and what it shows are the same objects in every call, with new values. Keep
        numbers from one call to the next, not views.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method select(self, view)")


#: What stands for a scheduler: its name with parameters, a class, an object that is copied for
#: each connection, or anything that makes one when it is called.
SchedulerLike = str | type[Scheduler] | Scheduler | PolicyTable | Callable[[], Scheduler]


@dataclass(frozen=True)
class Decision:
    """What a scheduler decided.

    Attributes:
        kind: "send", "send-at", "send-stream", "duplicate", "copy" or "hold".
        paths: the ids of the paths it names.
        reason: why, in its own words.
    """

    kind: str
    paths: tuple[int, ...]
    reason: str


def ask(
    scheduler: SchedulerLike, paths: Iterable[Mapping[str, Any]], *, now: float = 1.0
) -> Decision:
    """What a scheduler decides about one packet of fresh data, for its author's tests.

    ``paths`` are dicts with the names of `PathView`: times in seconds, sizes in bytes. What is
    not told is as on a path with nothing measured, with room for ten packets.

    >>> ask("min-rtt", paths=[{"smoothed_rtt": 0.080}, {"smoothed_rtt": 0.020}])
    Decision(kind='send', paths=(1,), reason='lowest_rtt')
    """
    told = [dict(path) for path in paths]
    asked = scheduler if isinstance(scheduler, str) else own("scheduler", scheduler)
    kind, ids, reason = _engine.ask(asked, told, now)
    return Decision(kind, tuple(ids), reason)
