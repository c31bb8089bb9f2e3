"""Carrying out runs: contenders, progress, Ctrl-C."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import _engine
from .controller import ControllerLike
from .errors import Interrupted, ScenarioError, SchedulerError
from .laboratory import Agents
from .own import Kind, Own, kind_of, own
from .scheduler import SchedulerLike
from .study import Study

#: Who takes part: a list of schedulers, or a dict of names and schedulers or keys of transport.
Contenders = Sequence[SchedulerLike | Mapping[str, Any]] | Mapping[
    str, SchedulerLike | Mapping[str, Any]
]

#: Schedulers and controllers written in Python that a scenario may name: their classes, or by name.
Schedulers = Sequence[object] | Mapping[str, object]

#: Kinds of contenders that are no scheduler of the engine.
KINDS = frozenset(_engine.kinds())

#: How often signals are looked for, in seconds.
STEP = 0.1
#: How long runs may take to end once the user asked for it, in seconds.
GRACE = 2.0


@dataclass
class Chosen:
    """Contenders as the engine wants them."""

    entries: list[tuple[str, dict[str, Any]]] | None
    own: list[Own] = field(default_factory=list)

    def program(self) -> str:
        """What will run them, as a hash: of the engine, and of what is written in Python."""
        hashes = [engine_hash(), *sorted(f"{o.name}={o.source}" for o in self.own)]
        return hashlib.sha256(" ".join(hashes).encode()).hexdigest()[:16]

    def add(self, kind: Kind, given: object, name: str | None = None) -> str:
        """The name under which a scheduler or controller written in Python takes part."""
        made = own(kind, given, name)
        for known in self.own:
            if (known.kind == "controller", known.name) == (kind == "controller", made.name):
                if not (known.about is made.about or known.kind == "table" and known == made):
                    raise ScenarioError(
                        f"two {kind}s are called {made.name}: give them names of their own, "
                        'as in contenders={"first": ..., "second": ...}'
                    )
                return made.name
        self.own.append(made)
        return made.name


@functools.cache
def engine_hash() -> str:
    """A hash of the engine's file."""
    file = getattr(_engine, "__file__", None)
    data = Path(file).read_bytes() if file else b""
    return hashlib.sha256(data).hexdigest()[:16]


def contenders_of(contenders: Contenders | None, schedulers: Schedulers) -> Chosen:
    """Reads what users give."""
    chosen = Chosen(None if contenders is None else [])
    if isinstance(schedulers, Mapping):
        for name, scheduler in schedulers.items():
            chosen.add(kind_of(scheduler), scheduler, name)
    else:
        for scheduler in schedulers:
            chosen.add(kind_of(scheduler), scheduler)
    if contenders is None or chosen.entries is None:
        return chosen
    if isinstance(contenders, str):
        raise ScenarioError(f'contenders: expected a list, as in contenders=["{contenders}"]')
    if isinstance(contenders, Mapping):
        for label, contender in contenders.items():
            chosen.entries.append((label, _overlay(chosen, contender, label)))
        return chosen
    for contender in contenders:
        if isinstance(contender, str):
            label, overlay = contender, _overlay(chosen, contender)
        elif isinstance(contender, Mapping):
            raise ScenarioError(
                "a contender that is a dict needs a name: contenders={\"mine\": {...}}"
            )
        else:
            overlay = _overlay(chosen, contender)
            label = overlay["scheduler"]
        chosen.entries.append((label, overlay))
    return chosen


def _overlay(chosen: Chosen, contender: object, label: str | None = None) -> dict[str, Any]:
    if isinstance(contender, str):
        return {"kind": contender} if contender in KINDS else {"scheduler": contender}
    overlay = dict(contender) if isinstance(contender, Mapping) else {"scheduler": contender}
    congestion = overlay.get("congestion")
    if _is_own(congestion):
        overlay["congestion"] = chosen.add("controller", congestion, label)
    scheduler = overlay.get("scheduler")
    if _is_own(scheduler):
        overlay["scheduler"] = chosen.add("scheduler", scheduler, label)
        chunk = getattr(scheduler, "chunk", None)
        if chunk is not None:
            overlay.setdefault("chunk", chunk)
    return overlay


def _is_own(given: object) -> bool:
    """Whether it is no word of a scenario."""
    return given is not None and not isinstance(given, (str, list, tuple))


def carry_out(
    plan: _engine.Plan,
    *,
    jobs: int = 0,
    out: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    on_error: str = "raise",
    clock: bool = True,
    hosts: Agents | None = None,
) -> Study:
    """Runs a plan; see `Scenario.run`, and without ``clock`` `sweep`, whose folders have tables as
    Parquet too. With ``hosts`` that takes place between network namespaces."""
    if on_error not in ("raise", "keep"):
        raise ValueError(f'on_error={on_error!r}: expected "raise" or "keep"')
    if jobs < 0:
        raise ValueError(f"jobs={jobs}: expected 0 or more")
    folder = None if out is None else os.fspath(out)
    campaign = _engine.Campaign.start(
        plan,
        jobs=jobs,
        folder=folder,
        keeps_errors=on_error == "keep",
        agent=None if hosts is None else hosts.command,
    )
    watched = hosts if on_error == "raise" else None
    stopped = not _waited(campaign, Progress.of(len(plan), progress), watched)
    study = Study(campaign.parts(), plan)
    if not clock:
        study = study.without_clock()
    if not stopped:
        raised = campaign.failure()
        if raised is not None:
            raise _scheduler_error(raised, study)
        if watched is not None:
            watched.check(study)
    if out is not None:
        study.write(out, parquet=not clock)
    if stopped:
        raise Interrupted(study)
    return study


def _waited(campaign: _engine.Campaign, shown: Progress, hosts: Agents | None) -> bool:
    """Waits for the end of the runs, or until an agent's scheduler raises an exception; False after
    Ctrl-C."""
    try:
        while not campaign.wait(STEP):
            shown.show(campaign.done)
            if hosts is not None and hosts.raised() is not None:
                campaign.stop()
    except KeyboardInterrupt:
        end(campaign)
        return False
    finally:
        shown.close(campaign.done)
    return True


def _scheduler_error(
    raised: tuple[BaseException, float, str, int, int], study: Study
) -> BaseException:
    cause, at, contender, repetition, seed = raised
    what = f"{contender}, repetition {repetition}, at {at:.6f} s of virtual time: "
    error = SchedulerError(what + f"{type(cause).__name__}: {cause}")
    error.study, error.virtual_time = study, at
    error.contender, error.repetition, error.seed = contender, repetition, seed
    error.__cause__ = cause
    return error


def end(campaign: _engine.Campaign) -> None:
    """Ends a campaign, at the latest after a few seconds, whatever its schedulers do."""
    campaign.stop()
    if campaign.wait(GRACE):
        return
    # A scheduler that does not return: an exception in its thread ends a loop in Python. One
    # that waits outside of Python is left behind; it ends with the program.
    thread = campaign.thread
    if thread:
        raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
        raise_in(ctypes.c_ulong(thread), ctypes.py_object(KeyboardInterrupt))
    campaign.wait(GRACE)


class Progress:
    """A line on stderr, written anew while runs go on."""

    def __init__(self, total: int, shown: bool) -> None:
        self.total = total
        self.shown = shown
        self.began = time.monotonic()
        self.last = 0.0

    @classmethod
    def of(cls, total: int, wanted: bool | None) -> Progress:
        """As wanted; where stderr is a terminal if that is None."""
        return cls(total, sys.stderr.isatty() if wanted is None else wanted)

    def show(self, done: int) -> None:
        """Shows how many runs are done, a few times a second."""
        now = time.monotonic()
        if not self.shown or now - self.last < 0.25:
            return
        self.last = now
        left = ""
        if done:
            seconds = (now - self.began) * (self.total - done) / done
            left = f", {seconds:.0f} s left"
        print(f"\r{done}/{self.total} runs{left}\x1b[K", end="", file=sys.stderr, flush=True)

    def close(self, done: int) -> None:
        """Shows the last figure and ends the line."""
        if self.shown and self.last:
            seconds = time.monotonic() - self.began
            line = f"\r{done}/{self.total} runs in {seconds:.1f} s\x1b[K"
            print(line, file=sys.stderr, flush=True)
