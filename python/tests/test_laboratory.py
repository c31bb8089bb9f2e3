"""The same classes in network namespaces: real packets, real kernels. They take root."""

import os

import pytest

import anabranch as ab
from anabranch import _engine, laboratory


@pytest.fixture
def kernel():
    """Skips a test where no namespaces can be made; where they are required, nothing is skipped."""
    lacking = _engine.laboratory_lacks()
    if lacking is not None and os.environ.get("ANABRANCH_REQUIRE_NETNS") != "1":
        pytest.skip(lacking[0])


#: A machine that is busy makes packets late. A run in which that happened is measured again, if its
#: results are kept, and so often at most.
TRIES = 5


def measured(scenario, contenders, folder):
    for _ in range(TRIES):
        study = scenario.run(contenders, runs=1, backend="netns", out=folder)
        if "invalid" not in study.runs["status"]:
            break
    return study


class Cheapest(ab.Scheduler):
    def select(self, view):
        path = min(view.ready, key=lambda p: (p.cost, p.smoothed_rtt), default=None)
        return view.send(path, "cheapest") if path else view.hold()


class Failing(ab.Scheduler):
    def select(self, view):
        raise LookupError("nothing there")


class Gentle(ab.Controller):
    """Eight packets in flight, whatever happens."""

    def begin(self, init):
        self.window = 8 * init.max_datagram_size

    def on_ack(self, event, members):
        print("what is printed does not disturb the laboratory")

    def on_congestion(self, event, members):
        pass


def test_a_scheduler_and_a_controller_in_python_meet_the_kernel(two, kernel, tmp_path):
    contenders = {
        "cheapest": Cheapest,
        "gentle": {"scheduler": "min-rtt", "congestion": Gentle},
        "table": ab.PolicyTable(features=[("ready", 0, [0.5])], actions=[1, 0]),
        "auto": "auto",
    }
    study = measured(two, contenders, tmp_path / "kernel")
    assert study.runs["reason"] == [""] * 4
    assert study.runs["backend"] == ["netns"] * 4 and study.runs["status"] == ["ok"] * 4
    took = {row["contender"]: row["completion_s"] for row in study.runs}
    # Eight packets for each round trip over 20 and 60 ms are a fifth of what the links could do.
    assert took["gentle"] > 1.1 * took["auto"]
    again = two.run(contenders, runs=1, backend="netns", out=tmp_path / "kernel")
    assert again.runs["completion_s"] == study.runs["completion_s"]
    with pytest.raises(ab.StoreError, match="of --backend netns, not of --backend sim"):
        two.run(contenders, runs=1, out=tmp_path / "kernel")


def test_an_exception_in_a_host_is_raised_with_its_traceback(two, kernel):
    with pytest.raises(ab.SchedulerError, match="LookupError: nothing there") as caught:
        two.run([Failing, Cheapest], runs=3, backend="netns")
    assert "in select" in "".join(caught.value.__notes__)
    study = two.run([Failing], runs=1, backend="netns", on_error="keep")
    assert study.runs["status"] == ["failed"]


def test_what_is_lacking_is_told(two, monkeypatch):
    lacking = ("namespaces: they need root", "run it as root")
    monkeypatch.setattr(laboratory._engine, "laboratory_lacks", lambda: lacking)
    with pytest.raises(ab.UsageError, match="they need root; run it as root"):
        two.run(["auto"], runs=1, backend="netns")
    with pytest.raises(ValueError, match='expected "sim" or "netns"'):
        two.run(["auto"], runs=1, backend="host")
