"""Decisions a second of a scheduler in Python, beside what the interpreter takes by itself.

    python benches/decisions.py

Three paths that can all send, two of equal cost. Each figure is the fastest of several batches.
"""

import timeit

import anabranch as ab
from anabranch import _engine

PATHS = [
    {"cost": 1, "smoothed_rtt": 0.020},
    {"cost": 1, "smoothed_rtt": 0.010},
    {"cost": 2, "smoothed_rtt": 0.030},
]
BATCHES = 15
DECISIONS = 50_000


class Cheapest(ab.Scheduler):
    def select(self, view):
        path = min(view.ready, key=lambda p: (p.cost, p.smoothed_rtt), default=None)
        return view.send(path, "cheapest") if path else view.hold()


class ByHand(ab.Scheduler):
    """The same without a function for each path."""

    def select(self, view):
        best, rank = None, (0, 0.0)
        for path in view.ready:
            mine = (path.cost, path.smoothed_rtt)
            if best is None or mine < rank:
                best, rank = path, mine
        return view.send(best, "cheapest") if best else view.hold()


class First(ab.Scheduler):
    """The least that can be done."""

    def select(self, view):
        return view.send(view.ready[0], "first")


class Slots:
    """A path of nothing but Python."""

    __slots__ = ("cost", "smoothed_rtt")

    def __init__(self, told):
        self.cost, self.smoothed_rtt = told["cost"], told["smoothed_rtt"]


class Floor:
    """A view of nothing but Python, whose answers cost nothing."""

    __slots__ = ("ready",)

    def send(self, path, reason):
        return path


def engine(make):
    """Seconds of one decision, asked by the engine."""
    return min(_engine.decide_many(make, PATHS, DECISIONS) for _ in range(BATCHES)) / DECISIONS


def floor(make):
    """Seconds of one decision, asked in a loop of Python over objects of Python."""
    view = Floor()
    view.ready = tuple(Slots(path) for path in PATHS)
    select = make().select
    times = timeit.repeat(lambda: select(view), number=DECISIONS, repeat=BATCHES)
    return min(times) / DECISIONS


def main():
    rust = engine("min-rtt")
    print(f"min-rtt in Rust: {rust * 1e9:.0f} ns, {1 / rust:,.0f} a second")
    for make in (Cheapest, ByHand, First):
        ours, bare = engine(make), floor(make)
        print(
            f"{make.__name__}: {ours * 1e9:.0f} ns, {1 / ours:,.0f} a second; "
            f"the interpreter by itself {bare * 1e9:.0f} ns"
        )


if __name__ == "__main__":
    main()
