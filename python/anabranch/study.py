"""Results of runs: tables, comparisons, plots."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from . import _engine
from .table import Table


@dataclass(frozen=True)
class Check:
    """A demand of a scenario on the results.

    Attributes:
        demand: it in words.
        swept: the swept keys with their values.
        contender: of whom it is demanded.
        ratio: what was measured, as a multiple of the reference; None if it could not be.
        interval: the bootstrap interval of ``ratio``, 95 %.
        holds: whether it holds; None if it could not be measured.
    """

    demand: str
    swept: list[tuple[str, str]]
    contender: str
    ratio: float | None
    interval: tuple[float, float] | None
    holds: bool | None


class Study:
    """The results of a scenario's runs, in the order of the plan.

    Its tables are those of ``docs/results.md``: `runs`, `paths`, `series`, `reasons`, `units`,
    `background` and `decisions`.
    """

    def __init__(
        self, parts: _engine.Parts, plan: _engine.Plan | None = None, *, missing: int | None = None
    ) -> None:
        self._parts = parts
        self._plan = plan
        self._tables: dict[str, Table] = {}
        total = len(parts) if plan is None else len(plan)
        #: Runs that were not carried out.
        self.missing = total - len(parts) if missing is None else missing

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def parts(self) -> _engine.Parts:
        """The runs as the engine has them."""
        return self._parts

    def table(self, name: str) -> Table:
        """The table of this name."""
        if name not in self._tables:
            self._tables[name] = Table(self._parts.table(name))
        return self._tables[name]

    @property
    def runs(self) -> Table:
        """One row is one run."""
        return self.table("runs")

    @property
    def paths(self) -> Table:
        """One row is one path of a run."""
        return self.table("paths")

    @property
    def series(self) -> Table:
        """One row is one bin of time of a path; path 0 is the connection."""
        return self.table("series")

    @property
    def reasons(self) -> Table:
        """One row is one reason for the scheduler's decisions in a run, with how often."""
        return self.table("reasons")

    @property
    def units(self) -> Table:
        """One row is one file, request or datagram with its time; only if the scenario records
        them: ``record.units``."""
        return self.table("units")

    @property
    def background(self) -> Table:
        """One row is one piece of background traffic, with what it got."""
        return self.table("background")

    @property
    def datagrams(self) -> Table:
        """One row is one flow of datagrams through a tunnel, with what became of them."""
        return self.table("datagrams")

    @property
    def decisions(self) -> Table:
        """One row is one decision; only if the scenario records them."""
        return self.table("decisions")

    def failures(self) -> list[tuple[str, int, str, str]]:
        """Runs that did not end well: contender, repetition, status and reason."""
        return self._parts.failures()

    def checks(self) -> list[Check]:
        """What ``[check]`` of the scenario demands, and whether it holds; nothing for a study whose
        scenario is not known, such as that of `Study.from_bytes`."""
        if self._plan is None:
            return []
        return [Check(*told) for told in self._parts.checks(self._plan)]

    def compare(self, baseline: str, metric: str = "goodput_bps") -> Comparison:
        """Each contender against ``baseline``, repetition by repetition.

        All contenders meet the same network in the same repetition, so the ratio of each pair
        is taken: its geometric mean with the 95 % confidence interval (Student's, of the
        logarithms) and the p value of Wilcoxon's signed-rank test, corrected for the number of
        comparisons (Holm). Runs that did not end well are left out with their pairs.

        Args:
            baseline: the name of a contender.
            metric: a column of numbers of `runs`.
        """
        return Comparison(self._parts.compare(baseline, metric))

    def without_clock(self) -> Study:
        """The same with nothing in ``wall_s``, the time that runs took on this machine: tables
        of equal runs are then equal."""
        return Study(self._parts.without_clock(), self._plan, missing=self.missing)

    def to_bytes(self) -> bytes:
        """Its runs, for `Study.from_bytes` in another process."""
        return self._parts.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes, missing: int = 0) -> Study:
        """The runs of another process."""
        return cls(_engine.Parts.from_bytes(data), missing=missing)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Study.from_bytes, (self.to_bytes(), self.missing))

    def write(self, folder: str | os.PathLike[str], *, parquet: bool = False) -> None:
        """Writes the folder that ``anabranch sim run --out`` writes."""
        self._parts.write(self._plan, os.fspath(folder), parquet)

    def __repr__(self) -> str:
        missing = f", {self.missing} missing" if self.missing else ""
        failed = len(self.failures())
        bad = f", {failed} did not end well" if failed else ""
        return f"<Study: {len(self)} runs{missing}{bad}>"


class Comparison(Table):
    """Contenders against one of them: ratios with their intervals.

    Columns: the swept keys as ``p.KEY``, ``contender``, ``baseline``, ``metric``, ``pairs``,
    ``ratio``, ``low``, ``high``, ``p``, and ``single``, which is 1 for a path alone.
    """

    def plot(self, ax: Any = None, *, singles: bool = True) -> Any:
        """Draws ratios and intervals with matplotlib; returns the axes.

        Args:
            ax: the axes of a figure of yours; a new one if None.
            singles: whether paths alone are drawn too.
        """
        from .plot import ratios

        rows = [row for row in self if singles or not row["single"]]
        return ratios(rows, ax)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def _lines(rows: Iterable[dict[str, Any]]) -> Iterable[str]:
    for row in rows:
        point = " ".join(f"{key[2:]}={row[key]}" for key in row if key.startswith("p."))
        who = f"{row['contender']} {point}".strip()
        if row["ratio"] is None:
            yield f"{who}: no pair ended well"
            continue
        interval = ""
        if row["low"] is not None:
            interval = f" [{row['low']:.3f}, {row['high']:.3f}]"
        p = "" if row["p"] is None else f", p = {row['p']:.2g}"
        yield (
            f"{who}: {row['ratio']:.3f}{interval} of {row['baseline']} in {row['metric']}, "
            f"{row['pairs']} pairs{p}"
        )
