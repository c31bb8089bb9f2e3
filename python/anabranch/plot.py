"""Plots with matplotlib, in the look of the laboratory's reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .errors import MissingError

#: The colours of the reports, after Okabe and Ito: told apart by colour-blind readers.
COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a7f85", "#8c613c",
)
INK, QUIET, FAINT = "#1d2329", "#56616b", "#dde2e6"


def axes(ax: Any, height: float) -> Any:
    """The axes given, or new ones of this height in inches."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingError("plots need the package matplotlib: pip install matplotlib") from error
    if ax is None:
        _, ax = pyplot.subplots(figsize=(7.0, height), layout="constrained")
    return ax


def ratios(rows: Sequence[dict[str, Any]], ax: Any = None) -> Any:
    """A line for each contender at each point: its ratio and interval, and 1 as what equals."""
    ax = axes(ax, 1.0 + 0.35 * max(len(rows), 1))
    labels = []
    contenders = list(dict.fromkeys(row["contender"] for row in rows))
    for at, row in enumerate(rows):
        point = " ".join(f"{key[2:]}={row[key]}" for key in row if key.startswith("p."))
        labels.append(f"{row['contender']}  {point}".strip())
        if row["ratio"] is None:
            continue
        colour = COLOURS[contenders.index(row["contender"]) % len(COLOURS)]
        if row["low"] is not None:
            ax.plot([row["low"], row["high"]], [at, at], color=colour, linewidth=2)
        ax.plot([row["ratio"]], [at], marker="o", color=colour)
    ax.axvline(1.0, color=QUIET, linewidth=1, linestyle="--")
    ax.set_yticks(range(len(labels)), labels)
    ax.invert_yaxis()
    if rows:
        ax.set_xlabel(f"{rows[0]['metric']}: ratio to {rows[0]['baseline']}, 95 % interval")
    ax.grid(axis="x", color=FAINT)
    ax.set_axisbelow(True)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.tick_params(colors=INK, length=0)
    return ax
