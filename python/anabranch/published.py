"""The experiments of five papers on multipath scheduling: run again, beside what was published."""

from __future__ import annotations

from dataclasses import dataclass

from . import _engine
from .errors import ScenarioError
from .scenario import Scenario
from .study import Study


@dataclass(frozen=True)
class Statement:
    """What a paper states, and what came out here.

    Attributes:
        experiment, number: the experiment, and the statement's number there.
        text: what is stated.
        published, ours: the figures.
        verdict: "holds", "DOES NOT HOLD", "told only" or "not run".
    """

    experiment: str
    number: str
    text: str
    published: str
    ours: str
    verdict: str


@dataclass(frozen=True)
class Paper:
    """An experiment of a paper.

    Attributes:
        name: its name, as ``anabranch sim papers --list`` has it.
        source: the paper and the place in it.
        about: what it is about.
    """

    name: str
    source: str
    about: str

    def scenario(self, *, full: bool = False) -> Scenario:
        """Its scenario with a small grid, or with the ``full`` one.

        Raises:
            ScenarioError: it is a worked example without a network.
        """
        text = _engine.paper_scenario(self.name, full)
        if text is None:
            raise ScenarioError(f"{self.name} is a worked example without a network")
        return Scenario.parse(text, f"{self.name}.toml")

    def statements(self, study: Study) -> list[Statement]:
        """What the paper states beside results of all runs of `scenario`."""
        told = _engine.paper_statements(self.name, study.parts)
        return [Statement(*one) for one in told]


def papers() -> list[Paper]:
    """All experiments.

    >>> [paper.source for paper in papers() if paper.name == "nitk"]
    ['second paper, 4.2']
    """
    return [Paper(names[0], source, about) for names, source, about in _engine.papers()]


def paper(name: str) -> Paper:
    """The experiment of this name.

    >>> paper("bth-paths").about
    'one, two, three paths'
    >>> paper("bth-path")
    Traceback (most recent call last):
    anabranch.errors.ScenarioError: no paper has an experiment `bth-path`; did you mean `bth-paths`?
    """
    for names, source, about in _engine.papers():
        if name in names:
            return Paper(name, source, about)
    _engine.paper_scenario(name, False)
    raise ScenarioError(f"no paper has an experiment `{name}`")
