"""A scheduler of one's own against two that are built in, over a DSL line and an LTE modem.

    python first.py

The scenario beside it is the one that `anabranch sim new` writes.
"""

from pathlib import Path

import anabranch as ab


class Cheapest(ab.Scheduler):
    """The cheapest path that can send; of equal ones, that with the lowest RTT."""

    def select(self, view: ab.SendView) -> ab.Choice:
        path = min(view.ready, key=lambda p: (p.cost, p.smoothed_rtt), default=None)
        return view.send(path, "cheapest") if path else view.hold()


def main() -> None:
    scenario = ab.Scenario.load(Path(__file__).with_name("dsl-and-lte.toml"))
    # Traffic over LTE costs something, and there is more of both.
    scenario = scenario.with_value("path.lte.cost", 1)
    study = scenario.run(contenders=["min-rtt", "blest", Cheapest], runs=10)
    print(study)
    print(study.compare("min-rtt"))
    for row in study.paths:
        if row["name"] == "lte" and row["run_id"] == study.runs["run_id"][2]:
            print(f"Cheapest sent {row['share']:.0%} over LTE")


if __name__ == "__main__":
    main()
