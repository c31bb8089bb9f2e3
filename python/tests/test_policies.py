"""Decisions in advance, and policies as tables."""

import pytest

import anabranch as ab
from anabranch.learning import FEATURES, PathEnv
from anabranch.policy import cell

#: Path 0 if it is ready; path 1 only while more than 40 packets wait.
PATIENT = ab.PolicyTable(
    features=[("backlog", 0, [40.0]), ("ready", 0, [0.5])], actions=[2, 0, 1, 0]
)


class InPython(ab.Scheduler):
    """What `PATIENT` does."""

    def select(self, view):
        near, far = view.paths[0], view.paths[-1]
        if near in view.ready:
            return view.send(near, "table")
        packet = near.max_datagram_size
        if far in view.ready and far is not near and view.backlog.unsent / packet >= 40:
            return view.send(far, "table")
        return view.hold("held")


def test_a_table_decides_as_the_same_policy_in_python(two):
    study = two.run({"table": PATIENT, "python": InPython}, runs=3)
    hashes = study.runs["trace_hash"]
    assert study.runs["status"] == ["ok"] * 6
    by_name = {name: [] for name in ("table", "python")}
    for name, trace in zip(study.runs["contender"], hashes, strict=True):
        by_name[name].append(trace)
    assert by_name["table"] == by_name["python"]


def test_a_table_answers_like_any_scheduler():
    full = {"bytes_in_flight": 12_000}
    assert ab.ask(PATIENT, paths=[{}, {}]) == ab.Decision("send", (0,), "table")
    assert ab.ask(PATIENT, paths=[full, {}]).paths == (1,)
    assert ab.ask(PATIENT, paths=[full, full]).kind == "hold"


def test_cells_are_the_same_in_an_environment_and_in_the_engine(two):
    env = PathEnv(two, paths=2)
    observation, info = env.reset(seed=3)
    done, decisions = False, 0
    while not done:
        action = PATIENT.action(observation)
        if not info["action_mask"][action]:
            action = 2
        observation, _, terminated, truncated, info = env.step(action)
        done, decisions = terminated or truncated, decisions + 1
    env.close()
    table = two.run({"agent": PATIENT}, runs=1, seed=3, singles=False)
    assert decisions > 100
    assert table.runs["trace_hash"] == [info["run"]["trace_hash"]]


def test_a_table_is_kept_in_a_file(two, tmp_path):
    file = tmp_path / "patient.json"
    PATIENT.save(file)
    assert ab.PolicyTable.load(file) == PATIENT
    for text in ("", "[]", '{"format": 2}', '{"format": 1, "paths": 2, "actions": [0]}'):
        file.write_text(text)
        with pytest.raises(ab.UsageError, match=r"patient\.json"):
            ab.PolicyTable.load(file)


def test_what_does_not_fit_together_is_refused():
    features = [("room", 0, [1.0])]
    for words, message in [
        ({"features": features, "actions": [0]}, "1 actions for 2 cells"),
        ({"features": features, "actions": [0, 3]}, "action 3 of cell 1"),
        ({"features": features, "actions": [0, 1000]}, "of cell 1"),
        ({"features": features, "actions": [0, -1]}, "of cell 1"),
        ({"features": [("room", 0, [2.0, 1.0])], "actions": [0, 0, 0]}, "ascending"),
        ({"features": [("rooms", 0, [1.0])], "actions": [0, 0]}, "no feature `rooms`"),
        ({"features": features, "actions": [0, 0], "paths": 0}, "from 1 to 16"),
    ]:
        with pytest.raises(ab.UsageError, match=message):
            ab.PolicyTable(**words)


def test_a_feature_of_a_path_that_is_not_there_is_0():
    edges = [("smoothed_rtt", 5, [0.0, 1.0])]
    assert cell(edges, [[0.0] * len(FEATURES)]) == 1


class Blocks(ab.Scheduler):
    """Decides about many packets at once."""

    def __init__(self, size):
        self.size = size
        self.asked = 0

    def select(self, view):
        self.asked += 1
        path = min(view.ready, key=lambda p: (p.smoothed_rtt == 0, p.smoothed_rtt), default=None)
        return view.sequence([path] * self.size, "block") if path else view.hold()


def test_a_sequence_saves_questions(two):
    made = []

    def block(size):
        def make():
            made.append(Blocks(size))
            return made[-1]

        return make

    asked = []
    for size in (1, 8):
        made.clear()
        study = two.run({"block": block(size)}, runs=1)
        assert study.runs["status"] == ["ok"]
        (count,) = (row["count"] for row in study.reasons if row["reason"] == "block")
        assert count > 300
        asked.append(sum(one.asked for one in made))
    assert asked[1] < 0.7 * asked[0]


def test_a_sequence_ends_where_it_cannot_be_carried_out(two):
    class Stubborn(ab.Scheduler):
        """Far more packets than a window takes."""

        def select(self, view):
            return view.sequence([view.ready[0]] * 10_000) if view.ready else view.hold()

    study = two.run([Stubborn], runs=1)
    assert study.runs["status"] == ["ok"]

    class Empty(ab.Scheduler):
        def select(self, view):
            return view.sequence([])

    with pytest.raises(ab.SchedulerError, match="no path"):
        two.run([Empty], runs=1)
