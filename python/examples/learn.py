"""Learns when a slow path is worth its time, and freezes what was learnt into a table.

    python learn.py [--episodes 600] [--out patient.json]

Two links, one of which is five times as fast and six times as near. Whoever fills both of them all
the time (min-rtt) waits in the end for what went the long way. How much may still go there depends
on how much is left to be sent, and on what is under way there already: that is learnt by trying
(Monte-Carlo control with a table; Sutton and Barto, second edition, section 5.4).

The result is compared with min-rtt and with ecf, which decides the same by a formula, over files
and seeds that were not used for learning. It needs numpy and gymnasium.
"""

import argparse

import numpy

import anabranch as ab
from anabranch.learning import PathEnv, cell

SCENARIO = """
format = 1
name = "near-and-far"
stop = "30s"
singles = false
[[path]]
name = "near"
forward = { rate = "10Mbit/s", delay = "10ms", queue = "100ms" }
backward = { like = "forward" }
[[path]]
name = "far"
forward = { rate = "2Mbit/s", delay = "60ms", queue = "100ms" }
backward = { like = "forward" }
[[flow]]
kind = "bulk"
bytes = "600kB"
"""

#: What decisions depend on: whether either path can take a packet, how many packets wait, and how
#: many are in flight on the far path.
FEATURES = [
    ("ready", 0, [0.5]),
    ("ready", 1, [0.5]),
    ("backlog", 0, [20, 50, 100, 150, 200, 300, 400, 500]),
    ("in_flight", 1, [1, 5, 10, 20]),
]
#: Sizes of files, in bytes; those that results are compared on are others.
LEARNT = (300_000, 600_000, 1_000_000)
COMPARED = (450_000, 800_000, 1_200_000)
NEAR, FAR, HOLD = 0, 1, 2


def learn(episodes: int) -> ab.PolicyTable:
    """Plays runs, and keeps for each cell and action the mean of what was still to come."""
    dice = numpy.random.default_rng(1)
    cells = ab.PolicyTable.cells(FEATURES)
    value = numpy.zeros((cells, HOLD + 1))
    tried = numpy.zeros((cells, HOLD + 1))
    worlds = [PathEnv(scenario(size), paths=2) for size in LEARNT]
    for episode in range(episodes):
        env = worlds[episode % len(worlds)]
        explore = 0.5 * (1 - episode / episodes)
        steps, rewards = play(env, episode, value, tried, explore, dice)
        to_come = numpy.cumsum(rewards[::-1])[::-1]
        for (where, action), reward in zip(steps, to_come, strict=True):
            tried[where, action] += 1
            rate = max(1 / tried[where, action], 0.001)
            value[where, action] += rate * (reward - value[where, action])
        if episode % 100 == 99:
            print(f"{episode + 1} of {episodes} runs", flush=True)
    for env in worlds:
        env.close()
    best = numpy.where(tried > 0, value, -numpy.inf)
    # Cells that never came up: as min-rtt would have it.
    usual = [NEAR if at >= cells // 2 else FAR for at in range(cells)]
    actions = numpy.where(tried.sum(axis=1) > 0, best.argmax(axis=1), usual)
    return ab.PolicyTable(features=FEATURES, actions=actions.tolist(), paths=2)


def play(env, seed, value, tried, explore, dice):
    """One run. The near path is used whenever it can be; what is learnt is the rest."""
    observation, info = env.reset(seed=seed)
    steps, rewards = [], []
    while True:
        where = cell(FEATURES, observation)
        if info["action_mask"][NEAR]:
            action = NEAR
        elif not info["action_mask"][FAR]:
            action = HOLD
        elif dice.random() < explore or not tried[where, FAR:].all():
            action = int(dice.integers(FAR, HOLD + 1))
        else:
            action = FAR + int(value[where, FAR:].argmax())
        observation, reward, terminated, truncated, info = env.step(action)
        steps.append((where, action))
        rewards.append(reward)
        if terminated or truncated:
            return steps, numpy.array(rewards)


def scenario(size: int) -> ab.Scenario:
    """The links with a file of so many bytes."""
    return ab.Scenario.parse(SCENARIO.replace("600kB", f"{size // 1000}kB"), "near-and-far.toml")


def compare(table: ab.PolicyTable) -> dict[int, dict[str, float]]:
    """Mean times in seconds by size and contender."""
    means: dict[int, dict[str, float]] = {}
    for size in COMPARED:
        contenders = {"learnt": table, "min-rtt": "min-rtt", "ecf": "ecf"}
        study = scenario(size).run(contenders, runs=10, seed=12345)
        means[size] = {}
        for name in contenders:
            times = [row["completion_s"] for row in study.runs if row["contender"] == name]
            means[size][name] = sum(times) / len(times)
    return means


def main() -> None:
    """Learns, compares, keeps."""
    words = argparse.ArgumentParser(description="learns when a slow path is worth its time")
    words.add_argument("--episodes", type=int, default=600, help="runs to learn from")
    words.add_argument("--out", default="patient.json", help="the file for the table")
    given = words.parse_args()
    table = learn(given.episodes)
    table.save(given.out)
    print("bytes     learnt  min-rtt      ecf   (seconds)")
    for size, means in compare(table).items():
        times = "  ".join(f"{means[name]:7.4f}" for name in ("learnt", "min-rtt", "ecf"))
        print(f"{size:6d}  {times}")
    print(f"the table is in {given.out}: ab.PolicyTable.load({given.out!r})")


if __name__ == "__main__":
    main()
