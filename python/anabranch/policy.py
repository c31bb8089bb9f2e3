"""Policies as tables: learnt in Python, carried out by the engine."""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _engine
from .errors import UsageError

#: What `PolicyTable.load` reads.
FORMAT = 1

#: Names of what a feature may look at; `anabranch.learning` shows them in this order.
FEATURES = (
    "ready",  # 1 if the path can take a packet now
    "smoothed_rtt",  # seconds, 0 before the first sample
    "min_rtt",  # seconds
    "room",  # packets that the window still has room for
    "in_flight",  # packets
    "delivery_rate",  # megabytes per second
    "loss",  # share of packets lost lately
    "cost",  # the user's cost per byte
    "backlog",  # packets that the connection has waiting; the same for all paths
)


@dataclass(frozen=True)
class PolicyTable:
    """A scheduler that looks its decisions up. It runs at the engine's speed, without Python.

    Features cut measures of the paths into bins, and each combination of bins has an action. It
    takes part wherever a scheduler does: ``scenario.run(contenders={"learnt": table})``.

    >>> patient = PolicyTable(
    ...     features=[("backlog", 0, [50.0]), ("ready", 0, [0.5])],
    ...     actions=[2, 0, 1, 0],
    ... )
    >>> patient.cell([[1, 0.02, 0, 9, 1, 0, 0, 0, 80]])
    3

    Attributes:
        features: the name of a measure, the id of a path, and the edges of the bins in ascending
            order. A value is in the bin whose number is the count of edges that it has reached.
        actions: an action for each cell, the last feature's bins next to each other: the id of a
            path, or ``paths`` to hold. A path that cannot take a packet counts as holding.
        paths: how many paths there are.
    """

    features: Sequence[tuple[str, int, Sequence[float]]]
    actions: Sequence[int]
    paths: int = 2

    def __post_init__(self) -> None:
        features = tuple(
            (str(name), int(path), tuple(float(edge) for edge in edges))
            for name, path, edges in self.features
        )
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "actions", tuple(int(action) for action in self.actions))
        _engine.check_table(self)

    @classmethod
    def cells(cls, features: Sequence[tuple[str, int, Sequence[float]]]) -> int:
        """How many cells these features make.

        >>> PolicyTable.cells([("backlog", 0, [10, 50]), ("ready", 0, [0.5])])
        6
        """
        count = 1
        for _, _, edges in features:
            count *= len(edges) + 1
        return count

    def cell(self, observation: Any) -> int:
        """The number of the cell of an observation of `anabranch.learning.PathEnv`."""
        return cell(self.features, observation)

    def action(self, observation: Any) -> int:
        """The action for an observation of `anabranch.learning.PathEnv`."""
        return self.actions[self.cell(observation)]

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes it as JSON."""
        told = {
            "format": FORMAT,
            "paths": self.paths,
            "features": self.features,
            "actions": self.actions,
        }
        Path(file).write_text(json.dumps(told) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> PolicyTable:
        """Reads what `save` wrote.

        Raises:
            UsageError: it is no such file.
        """
        text = Path(file).read_text(encoding="utf-8")
        try:
            told = json.loads(text)
            if told["format"] != FORMAT:
                raise UsageError(f"{file}: format {told['format']}: expected {FORMAT}")
            return cls(told["features"], told["actions"], told["paths"])
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{file} is no table of a policy: {error!r}") from error


def cell(features: Sequence[tuple[str, int, Sequence[float]]], observation: Any) -> int:
    """The number of the cell of an observation, while the actions are still to be learnt."""
    number = 0
    for name, path, edges in features:
        value = observation[path][FEATURES.index(name)] if path < len(observation) else 0.0
        number = number * (len(edges) + 1) + bisect_right(edges, value)
    return number
