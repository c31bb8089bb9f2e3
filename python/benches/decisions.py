"""Decisions a second of a scheduler in Python, beside what the interpreter takes by itself.

    python benches/decisions.py

Three paths that can all send, two of equal cost. Each figure is the fastest of several batches.
"""

import timeit

import anabranch as ab
from anabranch import _engine
from anabranch.own import own

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


class InAdvance(ab.Scheduler):
    """Decides about 64 packets at once."""

    def select(self, view):
        path = min(view.ready, key=lambda p: (p.cost, p.smoothed_rtt), default=None)
        return view.sequence([path] * 64, "cheapest") if path else view.hold()


#: The same as a table: path 1 if it is ready, then path 0, then path 2.
TABLE = ab.PolicyTable(
    features=[("ready", 0, [0.5]), ("ready", 1, [0.5])], actions=[2, 1, 0, 1], paths=3
)


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
    asked = make if isinstance(make, str) else own("scheduler", make)
    return min(_engine.decide_many(asked, PATHS, DECISIONS) for _ in range(BATCHES)) / DECISIONS


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
    for name, make in (("InAdvance", InAdvance), ("a table", TABLE)):
        each = engine(make)
        print(f"{name}: {each * 1e9:.0f} ns, {1 / each:,.0f} a second")
    for make in (Cheapest, ByHand, First):
        ours, bare = engine(make), floor(make)
        print(
            f"{make.__name__}: {ours * 1e9:.0f} ns, {1 / ours:,.0f} a second; "
            f"the interpreter by itself {bare * 1e9:.0f} ns"
        )


if __name__ == "__main__":
    main()
