"""Scenarios: networks, what is sent over them, and who sends it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _engine
from .errors import ScenarioError
from .laboratory import agents
from .running import Chosen, Contenders, Schedulers, carry_out, contenders_of
from .study import Study


class Scenario:
    """An experiment: a network, flows, and who carries them.

    The format is that of the command ``anabranch sim run``, described in ``docs/scenarios.md``.
    A scenario does not change: ``with_value`` gives another one.

    >>> scenario = Scenario.template()
    >>> scenario.name
    'dsl-and-lte'
    >>> study = scenario.run(contenders=["min-rtt"], runs=1, progress=False)
    >>> study.runs["status"]
    ['ok', 'ok', 'ok']
    """

    def __init__(self, document: _engine.Document) -> None:
        self._document = document

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Scenario:
        """Reads a TOML file. Files that it names are relative to it.

        Raises:
            ScenarioError: it cannot be read, or is no TOML.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ScenarioError(f"cannot read {os.fspath(path)}: {error}") from error
        return cls(_engine.Document.parse(os.fspath(path), text))

    @classmethod
    def parse(cls, text: str, name: str = "scenario.toml") -> Scenario:
        """Reads TOML from text; messages call it ``name``."""
        return cls(_engine.Document.parse(name, text))

    @classmethod
    def build(cls, values: Mapping[str, Any] | None = None, /, **more: Any) -> Scenario:
        """Makes a scenario of dicts and lists, with the keys of the format.

        Quantities are text with their unit, as in a file; times may be ``datetime.timedelta``.

        >>> link = {"rate": "10Mbit/s", "delay": "10ms", "queue": "100ms"}
        >>> scenario = Scenario.build(
        ...     name="one-link",
        ...     stop="60s",
        ...     path=[{"name": "a", "forward": link, "backward": link}],
        ...     flow=[{"kind": "bulk", "bytes": "1MB"}],
        ... )
        >>> scenario.check()
        """
        whole = {"format": 1, **(values or {}), **more}
        scenario = cls(_engine.Document.build("scenario", whole))
        scenario.check()
        return scenario

    @classmethod
    def template(cls) -> Scenario:
        """The commented scenario that ``anabranch sim new`` writes: a DSL line and an LTE modem."""
        return cls.parse(_engine.template(), "template.toml")

    def with_value(self, key: str, value: Any) -> Scenario:
        """The same with another value at ``key``, as ``--set key=value`` of the command.

        >>> Scenario.template().with_value("path.lte.forward.delay", "90ms").name
        'dsl-and-lte'
        """
        return Scenario(self._document.with_value(key, value))

    def check(self) -> None:
        """Raises `ScenarioError` if the command would refuse it."""
        self._document.check()

    @property
    def name(self) -> str:
        """Its name in results; empty if it has none."""
        return self._document.name or ""

    def to_toml(self) -> str:
        """The scenario as TOML in a canonical form, without comments."""
        return self._document.to_toml()

    def to_dict(self) -> dict[str, Any]:
        """The scenario as dicts and lists, as `build` takes them."""
        objects = self._document.to_objects()
        assert isinstance(objects, dict)
        return objects

    def run(
        self,
        contenders: Contenders | None = None,
        *,
        runs: int | None = None,
        seed: int | None = None,
        sweep: Mapping[str, Sequence[Any]] | None = None,
        singles: bool | None = None,
        schedulers: Schedulers = (),
        shard: tuple[int, int] | None = None,
        jobs: int = 0,
        out: str | os.PathLike[str] | None = None,
        progress: bool | None = None,
        on_error: str = "raise",
        backend: str = "sim",
    ) -> Study:
        """Runs it and returns the results.

        The same seed gives the same runs, with the same ``trace_hash``, as ``anabranch sim run``.
        Runs take place on all cores without the interpreter; those that a scheduler written in
        Python decides take turns in one thread beside them.

        Args:
            contenders: who carries the flows, instead of those of the scenario: names of
                schedulers, classes, objects, or of kinds such as "tcp"; or a dict of names and
                any of these or dicts with keys of ``[transport]``, among them ``congestion``: a
                name, or a `Controller`.
            runs: repetitions, instead of the scenario's.
            seed: the seed of the whole, instead of the scenario's.
            sweep: values by key, as ``[sweep]`` of a scenario; all combinations are run.
            singles: whether each path is also run alone; as the scenario says if None.
            schedulers: further schedulers and controllers written in Python that the scenario, or
                a name such as "guard+Cheapest", may name; a dict gives them other names than their
                classes.
            shard: ``(I, N)`` runs only the I-th of N parts, from 1; `merge` puts folders of
                parts together.
            jobs: runs at a time; 0 means one per core.
            out: a folder that keeps results as ``sim run --out`` does; runs that are there
                already are not repeated.
            progress: whether to show progress on stderr; where that is a terminal if None.
            on_error: "raise" ends everything when a scheduler raises; "keep" makes that run a row
                with the status "failed".
            backend: "sim" is the simulator. "netns" carries real packets between network namespaces
                of this machine, one run after another, as ``anabranch lab run`` does: with kernels
                as rivals, in real time, as root. Schedulers and controllers written in Python then
                decide in processes of their own, which get copies of them by cloudpickle.

        Raises:
            ScenarioError: something in it makes no sense.
            SchedulerError: a scheduler raised an exception; it is the cause.
            Interrupted: Ctrl-C; it has the runs that were done.
        """
        if backend not in ("sim", "netns"):
            raise ValueError(f'backend={backend!r}: expected "sim" or "netns"')
        chosen = contenders_of(contenders, schedulers)
        plan = self.plan(chosen, runs=runs, seed=seed, sweep=sweep, singles=singles)
        if shard is not None:
            plan = plan.shard(*shard)
        if backend == "sim":
            return carry_out(plan, jobs=jobs, out=out, progress=progress, on_error=on_error)
        with agents(chosen.own) as hosts:
            return carry_out(plan, out=out, progress=progress, on_error=on_error, hosts=hosts)

    def plan(
        self,
        contenders: Contenders | Chosen | None = None,
        *,
        runs: int | None = None,
        seed: int | None = None,
        sweep: Mapping[str, Sequence[Any]] | None = None,
        singles: bool | None = None,
        schedulers: Schedulers = (),
    ) -> _engine.Plan:
        """The runs that `run` would carry out: ``len`` counts them, ``run_ids`` names them."""
        chosen = contenders
        if not isinstance(chosen, Chosen):
            chosen = contenders_of(chosen, schedulers)
        for name, number in (("runs", runs), ("seed", seed)):
            if number is not None and number < 0:
                raise ScenarioError(f"{name}={number}: expected 0 or more")
        return _engine.Plan(
            self._document,
            chosen.program(),
            contenders=chosen.entries,
            sweep=[(key, list(values)) for key, values in (sweep or {}).items()],
            own=chosen.own,
            runs=runs,
            seed=seed,
            singles=singles,
        )

    def __repr__(self) -> str:
        return f"<Scenario {self.name or 'without a name'}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scenario) and self.to_toml() == other.to_toml()

    def __hash__(self) -> int:
        return hash(self.to_toml())

    def __reduce__(self) -> tuple[Any, ...]:
        return (Scenario.parse, (self.to_toml(), self._document.file))
