"""Ctrl-C: runs end at once, and what was done is kept."""

import csv
import os
import signal
import threading
import time

import pytest

import anabranch as ab

#: Seconds until Ctrl-C; long enough for the first short runs on a slow machine.
SOON = 1.5
#: The most seconds that anything here may take, far below what the runs would.
LIMIT = 60


@pytest.fixture
def control_c():
    timer = threading.Timer(SOON, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    yield
    timer.cancel()


@pytest.fixture
def long(two):
    """A run of hours of virtual time."""
    flows = [{"kind": "bulk", "duration": "40000s"}]
    return two.with_value("flow", flows).with_value("stop", "50000s").with_value(
        "record.series", False
    )


def stopped(scenario, **words):
    began = time.monotonic()
    with pytest.raises(ab.Interrupted) as caught:
        scenario.run(**words)
    assert time.monotonic() - began < LIMIT
    return caught.value


def test_control_c_ends_a_run_under_way(long, control_c):
    error = stopped(long, contenders=["ecf"], runs=2)
    assert isinstance(error, KeyboardInterrupt)
    assert (len(error.study), error.study.missing) == (0, 2)


def test_what_is_done_is_kept_and_a_folder_goes_on_from_there(two, control_c, tmp_path):
    words = {"contenders": ["ecf"], "runs": 20_000, "out": tmp_path}
    error = stopped(two, **words)
    done = len(error.study)
    assert 0 < done < 20_000
    assert error.study.runs["status"] == ["ok"] * done
    again = two.run(contenders=["ecf"], runs=1, out=tmp_path)
    assert again.runs["wall_s"] == error.study.runs["wall_s"][:1]


def test_a_sweep_that_is_stopped_says_nothing_of_the_clock(two, control_c, tmp_path):
    values = {"path.b.forward.delay": ["10ms", "40ms"]}
    with pytest.raises(ab.Interrupted) as caught:
        ab.sweep(two, values, contenders=["ecf"], runs=10_000, out=tmp_path)
    done = caught.value.study
    assert len(done) > 0 and set(done.runs["wall_s"]) == {None}
    with open(tmp_path / "runs.csv", newline="") as file:
        assert {row["wall_s"] for row in csv.DictReader(file)} == {""}


def test_a_scheduler_that_never_returns_cannot_hold_the_interpreter(two, control_c):
    class Endless(ab.Scheduler):
        def select(self, view):
            while True:
                pass

    stopped(two, contenders=[Endless], runs=1)


def test_a_scheduler_that_sleeps_cannot_hold_the_interpreter(two, control_c):
    class Sleepy(ab.Scheduler):
        def select(self, view):
            time.sleep(120)

    stopped(two, contenders=[Sleepy], runs=1)


def test_control_c_ends_a_measurement(control_c):
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        ab.promise("min-rtt", worlds=100_000)
    assert time.monotonic() - began < LIMIT
