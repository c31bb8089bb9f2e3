"""Congestion controllers written in Python."""

import math

import pytest

import anabranch as ab


class Reno(ab.Controller):
    """NewReno, as RFC 9002 has it in appendix B."""

    recovery = -1.0

    def on_ack(self, event, members):
        if event.app_limited or event.largest_sent <= self.recovery:
            return
        slow_start = self.ssthresh is None or self.window < self.ssthresh
        share = 1.0 if slow_start else self.max_datagram_size / self.window
        self.window += share * event.bytes

    def on_congestion(self, event, members):
        if event.last_sent > self.recovery:
            self.recovery = event.now
            self.ssthresh = self.window = self.window / 2


class Still(ab.Controller):
    """A window that stays as it is."""

    def on_ack(self, event, members):
        pass

    def on_congestion(self, event, members):
        pass


def run(two, congestion, **words):
    contender = {"one": {"scheduler": "min-rtt", "congestion": congestion}}
    return two.run(contender, runs=1, **words)


def test_reno_in_python_does_what_the_built_in_one_does(two):
    large = two.with_value("flow", [{"kind": "bulk", "bytes": "5MB"}])
    mine, built_in = (
        row["completion_s"]
        for congestion in (Reno, "new-reno")
        for row in run(large, congestion).runs
    )
    assert mine == pytest.approx(built_in, rel=0.1)


def test_a_run_of_a_controller_in_python_is_the_same_twice(two):
    first, second = (run(two, Reno).runs for _ in range(2))
    assert first["trace_hash"] == second["trace_hash"]
    assert first["run_id"] == second["run_id"]


def test_each_path_has_an_object_of_its_own_that_knows_its_path(two):
    begun = []

    class Noting(Reno):
        def begin(self, init):
            super().begin(init)
            begun.append((init.path, init.max_datagram_size, self.window))

    run(two, Noting)
    paths = {path for path, _, _ in begun}
    assert paths == {0, 1}
    assert all(window == min(10 * size, 14_720) for _, size, window in begun)
    # An object is copied for each path and stays as it was.
    pattern = Reno()
    run(two, pattern)
    assert pattern.window == 0.0


def test_the_window_bounds_what_is_in_flight(two):
    class Small(Still):
        def begin(self, init):
            self.window = 1.0  # Counts as two packets.

    seen = []

    class Looking(Small):
        def on_sent(self, event):
            seen.append(event.bytes_in_flight)

    run(two, Looking)
    assert seen and max(seen) <= 2 * 1500


def test_the_pacing_rate_is_kept(two):
    class Paced(Still):
        window = 1_000_000.0
        pacing_rate = 125_000.0

        def begin(self, init):
            pass

    study = run(two, Paced)
    (row,) = study.runs
    # 500 kB over two paths at 125 kB a second each.
    assert 1.8 < row["completion_s"] < 2.3


def test_only_a_coupled_controller_sees_the_other_paths(two):
    groups = []

    class Coupled(Reno):
        is_coupled = True

        def on_ack(self, event, members):
            groups.append([(member.path, member.is_self) for member in members])
            super().on_ack(event, members)

    run(two, Coupled)
    assert any(len(group) == 2 for group in groups)
    assert all(sum(own for _, own in group) == 1 for group in groups)
    groups.clear()
    Coupled.is_coupled = False
    run(two, Coupled)
    assert groups and not any(groups)


def test_events_have_what_happened(two):
    acks, losses = [], []

    class Listening(Reno):
        def on_ack(self, event, members):
            acks.append(event)
            super().on_ack(event, members)

        def on_congestion(self, event, members):
            losses.append(event)
            super().on_congestion(event, members)

    run(two, Listening)
    assert sum(event.bytes for event in acks) > 400_000
    assert all(0.015 < event.smoothed_rtt < 1.0 for event in acks)
    assert any(event.delivery_rate for event in acks)
    assert [event.now for event in acks] == sorted(event.now for event in acks)
    assert losses and all(event.last_sent <= event.now for event in losses)


def test_a_test_of_a_controller_makes_events_itself():
    reno = Reno()
    reno.begin(ab.ControllerInit(max_datagram_size=1000))
    reno.on_ack(ab.AckEvent(now=0.1, bytes=1000, largest_sent=0.05), [])
    assert reno.window == 11_000
    reno.on_congestion(ab.CongestionEvent(now=0.2, last_sent=0.1, bytes_lost=1000), [])
    assert (reno.window, reno.ssthresh) == (5_500, 5_500)
    assert repr(ab.Member(path=3, is_self=True)).startswith("Member(path=3, is_self=True, ")
    with pytest.raises(TypeError, match="byte"):
        ab.AckEvent(byte=1)


@pytest.mark.parametrize("where", ["begin", "on_ack", "on_congestion"])
def test_an_exception_ends_the_run_with_the_time(two, where):
    class Failing(Reno):
        pass

    def fail(self, *_):
        raise LookupError("nothing there")

    setattr(Failing, where, fail)
    with pytest.raises(ab.SchedulerError, match="nothing there") as caught:
        run(two, Failing)
    assert isinstance(caught.value.__cause__, LookupError)
    assert caught.value.virtual_time >= 0.0


@pytest.mark.parametrize(
    ("name", "value"),
    [("window", math.nan), ("window", "large"), ("pacing_rate", 0.0), ("ssthresh", math.nan)],
)
def test_an_attribute_that_makes_no_sense_ends_the_run(two, name, value):
    class Wrong(Reno):
        def on_ack(self, event, members):
            setattr(self, name, value)

    with pytest.raises(ab.SchedulerError):
        run(two, Wrong)


def test_a_scenario_may_name_one(two):
    named = two.with_value("transport.congestion", "Reno")
    with pytest.raises(ab.ScenarioError, match="Reno"):
        named.run(["min-rtt"], runs=1)
    study = named.run(["min-rtt"], runs=1, schedulers=[Reno])
    assert study.runs["congestion"] == ["Reno"]
    other = two.with_value("transport.congestion", "gentle")
    study = other.run(["min-rtt"], runs=1, schedulers={"gentle": Reno})
    assert study.runs["congestion"] == ["gentle"]


def test_what_is_no_controller_is_refused(two):
    with pytest.raises(ab.ScenarioError, match="object is no controller"):
        run(two, object)
    with pytest.raises(ab.ScenarioError, match="a int is no controller"):
        run(two, 7)
    with pytest.raises(ab.SchedulerError, match="has no method on_ack"):
        run(two, ab.Controller)


def test_the_promise_is_measured_with_a_controller_in_python():
    measured = ab.promise("min-rtt", worlds=1, plain=True, congestion=Reno)
    assert len(measured) == 1


def test_those_built_in_are_listed():
    names = [one.name for one in ab.controllers()]
    assert {"cubic", "new-reno", "bbr", "olia"} <= set(names)
