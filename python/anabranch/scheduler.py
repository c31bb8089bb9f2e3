"""Schedulers written in Python, and asking them without a network."""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from . import _engine
from ._engine import Choice, PathEvent, SendView
from .errors import ScenarioError


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
SchedulerLike = str | type[Scheduler] | Scheduler | Callable[[], Scheduler]


@dataclass(frozen=True)
class Own:
    """A scheduler written in Python, as the engine wants it."""

    name: str
    make: Callable[[], object]
    #: What has its attributes: the class, or the object.
    about: object
    #: A hash of its source, so that results of another version are not mixed with its own. It is
    #: made where the source is: a worker of a cluster may not have it.
    source: str


def source_hash(make: object, about: object) -> str:
    """A hash of what decides how a scheduler behaves: its source and its attributes."""
    kind = about if isinstance(about, type) or inspect.isfunction(about) else type(about)
    try:
        source = inspect.getsource(kind)
    except (OSError, TypeError):
        source = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(make, functools.partial):
        source += repr((make.args, sorted(make.keywords.items())))
    if kind is not about and hasattr(about, "__dict__"):
        source += repr(sorted(vars(about).items()))
    # Where an object is in memory is nothing of its own.
    return hashlib.sha256(re.sub(r" at 0x[0-9a-f]+", "", source).encode()).hexdigest()[:16]


def own(scheduler: object, name: str | None = None) -> Own:
    """What the engine needs of a scheduler that is not a name."""
    make: Callable[[], object]
    about: object
    if isinstance(scheduler, type):
        make, about, called = scheduler, scheduler, scheduler.__name__
    elif callable(getattr(scheduler, "select", None)):
        make, about = functools.partial(copy.deepcopy, scheduler), scheduler
        called = type(scheduler).__name__
    elif callable(scheduler):
        inner = scheduler.func if isinstance(scheduler, functools.partial) else scheduler
        make, about = scheduler, inner
        called = getattr(inner, "__name__", type(inner).__name__)
    else:
        kind = type(scheduler).__name__
        raise ScenarioError(
            f"a {kind} is no scheduler: expected a name such as \"blest\", a class with a method "
            "select, or an object of one"
        )
    if isinstance(about, type) and not callable(getattr(about, "select", None)):
        raise ScenarioError(f"{called} is no scheduler: it has no method select(self, view)")
    word = re.sub(r"[^A-Za-z0-9_-]+", "-", name or called).strip("-")
    return Own(word or "scheduler", make, about, source_hash(make, about))


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
    if isinstance(scheduler, str):
        kind, ids, reason = _engine.ask(scheduler, None, told, now)
    else:
        made = own(scheduler)
        kind, ids, reason = _engine.ask(made.make, made.about, told, now)
    return Decision(kind, tuple(ids), reason)
