"""Whether a scheduler keeps what users take for granted."""

from __future__ import annotations

from dataclasses import dataclass

from . import _engine
from .controller import ControllerLike
from .own import Kind, Own, own
from .scheduler import SchedulerLike
from .table import Table


def _named(kind: Kind, given: object) -> tuple[str, list[Own]]:
    """Its name, and what the engine needs of it if it is written in Python."""
    if isinstance(given, str):
        return (given, [])
    made = own(kind, given)
    return (made.name, [made])


class Conformance(Table):
    """The findings of the conformance kit: ``rule``, ``network``, ``verdict``, ``figure``."""

    def __init__(self, inner: _engine.Table, conforms: bool) -> None:
        super().__init__(inner)
        #: Whether every rule was kept or is excused.
        self.conforms = conforms

    def broken(self) -> list[dict[str, str]]:
        """The findings that were neither kept nor excused."""
        return [row for row in self if row["verdict"] == "broken"]

    def __bool__(self) -> bool:
        return self.conforms

    def __str__(self) -> str:
        kept = sum(verdict == "kept" for verdict in self["verdict"])
        verdict = "conforms" if self.conforms else "does not conform"
        lines = [f"{verdict}: {kept} of {len(self)} kept"]
        lines += [f"  {r['rule']} over {r['network']}: {r['figure']}" for r in self.broken()]
        return "\n".join(lines)


def conform(scheduler: SchedulerLike) -> Conformance:
    """Checks a scheduler by the conformance kit, as ``anabranch sim conform`` does.

    Never slower than the best single path, streams are served alike, no pause longer than
    600 ms, a flapping path is survived, and so on: ``docs/scheduler-reference.md`` has the
    rules. The result is true if every rule was kept or is excused.

    Raises:
        SpecError: there is no scheduler of this name.
        SchedulerError: it raised an exception.
    """
    table, conforms = _engine.conform(*_named("scheduler", scheduler))
    return Conformance(table, conforms)


@dataclass(frozen=True)
class Bar:
    """How many worlds took longer than ``factor`` times the best link alone."""

    factor: float
    broken: int


class Promise(Table):
    """Random worlds: a row each, with all links against the best one alone."""

    def bars(self) -> tuple[Bar, Bar]:
        """How often the promise was broken by more than 2 %, and by more than 10 %."""
        return (Bar(1.02, sum(self["over_1_02"])), Bar(1.10, sum(self["over_1_10"])))


def promise(
    scheduler: SchedulerLike,
    *,
    worlds: int = 100,
    first: int = 1,
    plain: bool = False,
    congestion: ControllerLike | None = None,
    jobs: int = 0,
) -> Promise:
    """Measures how often a scheduler loses to the better path, as ``anabranch sim promise`` does.

    Args:
        worlds: how many random worlds, from the seed ``first`` on.
        plain: whether links only have a rate, a delay, a queue and loss by chance.
        congestion: the congestion controller; the engine's own if None.
        jobs: threads, 0 for one per core. A scheduler written in Python takes one.
    """
    name, made = _named("scheduler", scheduler)
    control: str | None = None
    if congestion is not None:
        control, also = _named("controller", congestion)
        made += also
    table = _engine.promise(
        name,
        made,
        worlds=worlds,
        first=first,
        plain=plain,
        congestion=control,
        jobs=jobs,
    )
    return Promise(table)


@dataclass(frozen=True)
class Parameter:
    """A parameter: its key, the value it has unless given, what it does."""

    key: str
    default: str
    summary: str


@dataclass(frozen=True)
class BuiltIn:
    """A scheduler or congestion controller that is built in."""

    name: str
    summary: str
    parameters: tuple[Parameter, ...]


def schedulers() -> list[BuiltIn]:
    """The schedulers that are built in, as ``anabranch schedulers`` lists them.

    >>> schedulers()[0].name
    'min-rtt'
    """
    return _built_in(_engine.schedulers())


def controllers() -> list[BuiltIn]:
    """The congestion controllers that are built in.

    >>> controllers()[0].name
    'cubic'
    """
    return _built_in(_engine.controllers())


def _built_in(entries: list[tuple[str, str, list[tuple[str, str, str]]]]) -> list[BuiltIn]:
    return [
        BuiltIn(name, summary, tuple(Parameter(*parameter) for parameter in parameters))
        for name, summary, parameters in entries
    ]
