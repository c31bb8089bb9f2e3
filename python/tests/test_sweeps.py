"""Studies in parts: shards, folders put together, a cluster that loses a worker."""

import contextlib
import os
import pickle
import signal
import sys
import threading
import time

import pytest
from conftest import TWO

import anabranch as ab

DELAYS = {"path.b.forward.delay": ["10ms", "40ms"]}


class Cheapest(ab.Scheduler):
    def select(self, view):
        path = min(view.ready, key=lambda p: (p.cost, p.smoothed_rtt), default=None)
        return view.send(path, "cheapest") if path else view.hold()


def tables(folder):
    names = ("runs", "paths", "series", "reasons")
    return [(folder / f"{name}.parquet").read_bytes() for name in names]


def test_shards_put_together_are_the_whole_byte_for_byte(two, tmp_path):
    words = {"contenders": ["ecf", Cheapest], "runs": 3}
    for number in (1, 2, 3):
        part = two.run(**words, sweep=DELAYS, shard=(number, 3), out=tmp_path / str(number))
        assert len(part) == 4
    folders = [tmp_path / str(number) for number in (3, 1, 2)]
    merged = ab.merge(folders, schedulers=[Cheapest], out=tmp_path / "merged")
    whole = ab.sweep(two, DELAYS, **words, out=tmp_path / "whole")
    assert whole.runs["wall_s"] == [None] * 12
    assert (len(merged), merged.missing) == (12, 0)
    assert merged.runs["trace_hash"] == whole.runs["trace_hash"]
    assert tables(tmp_path / "merged") == tables(tmp_path / "whole")
    for name in ("runs.csv", "paths.csv", "series.csv", "reasons.csv"):
        merged_text = (tmp_path / "merged" / name).read_text()
        assert merged_text == (tmp_path / "whole" / name).read_text()


def test_what_is_put_together_is_judged_and_what_was_read_stays_as_it_was(tmp_path):
    check = '[check]\ngoodput = { of = "sum-of-rates", at-least = 0.9, at-most = 0.95 }\n'
    scenario = ab.Scenario.parse(TWO + check, "two.toml")
    for number in (1, 2):
        scenario.run(["ecf"], runs=2, shard=(number, 2), out=tmp_path / str(number))
    folders = [tmp_path / "1", tmp_path / "2"]

    def seen():
        files = sorted(file for folder in folders for file in folder.rglob("*"))
        return [(file, file.stat().st_mtime_ns) for file in files]

    before = seen()
    (told,) = ab.merge(folders).checks()
    assert seen() == before
    assert told.demand == "goodput from 90 % to 95 % of the sum of rates"
    assert told.contender == "ecf" and 0.1 < told.ratio < 0.9 and told.holds is False


def test_a_shard_that_is_missing_is_counted(two, tmp_path):
    words = {"contenders": ["ecf"], "runs": 4}
    two.run(**words, shard=(1, 2), out=tmp_path / "1")
    assert ab.merge([tmp_path / "1"]).missing == 2
    # All contenders of a repetition are in one shard: what is there can be compared.
    plan = two.plan(["ecf", "blest"], runs=4)
    first, second = plan.shard(1, 2), plan.shard(2, 2)
    assert first.run_ids + second.run_ids != plan.run_ids
    assert sorted(first.run_ids + second.run_ids) == sorted(plan.run_ids)
    assert first.run_ids[:2] == plan.run_ids[:2]


def test_folders_that_do_not_belong_together_are_refused(two, tmp_path):
    two.run(contenders=["ecf"], runs=1, out=tmp_path / "a")
    two.run(contenders=["blest"], runs=1, out=tmp_path / "b")
    with pytest.raises(ab.StoreError, match="b holds results of another scenario"):
        ab.merge([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(ab.StoreError, match="holds no results"):
        ab.merge([tmp_path / "c"])
    with pytest.raises(ab.StoreError, match="no folder"):
        ab.merge([])
    with pytest.raises(ab.ScenarioError, match="no shard 0 of 2"):
        two.run(shard=(0, 2))


def test_a_sweep_goes_on_where_it_was_stopped(two, tmp_path):
    words = {"contenders": ["ecf"], "runs": 3}
    whole = ab.sweep(two, DELAYS, **words, out=tmp_path / "whole")
    ab.sweep(two, DELAYS, **words, out=tmp_path / "part")
    parts = sorted((tmp_path / "part/parts").iterdir())
    for part in parts[:4]:
        part.unlink()
    kept = {part: part.stat().st_mtime_ns for part in parts[4:]}
    again = ab.sweep(two, DELAYS, **words, out=tmp_path / "part")
    assert {part: part.stat().st_mtime_ns for part in parts[4:]} == kept
    assert again.runs["trace_hash"] == whole.runs["trace_hash"]
    assert tables(tmp_path / "part") == tables(tmp_path / "whole")


def test_studies_and_errors_go_from_process_to_process(two):
    study = two.run(contenders=["ecf"], runs=2)
    again = pickle.loads(pickle.dumps(study))
    assert again.runs["trace_hash"] == study.runs["trace_hash"] and again.missing == 0
    stopped = pickle.loads(pickle.dumps(ab.Interrupted(study)))
    assert len(stopped.study) == 2
    with pytest.raises(ab.ScenarioError) as caught:
        two.with_value("path.c.x", 1)
    assert pickle.loads(pickle.dumps(caught.value)).key == caught.value.key


def test_a_place_that_is_not_known_is_refused(two):
    with pytest.raises(ValueError, match='expected "local" or "ray"'):
        ab.sweep(two, DELAYS, on="slurm")


class Deadly(Cheapest):
    """Kills its process in the middle of a run, once: whoever makes the mark is the one."""

    mark = ""

    def select(self, view):
        if view.now > 0.1 and self.mark and not os.path.exists(self.mark):
            # Another worker may make it between the question and this.
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
        return super().select(view)


@pytest.fixture
def cluster():
    import ray

    # Schedulers travel to workers as they are: workers cannot import this file.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield
    ray.shutdown()


@pytest.mark.filterwarnings("default")
def test_a_killed_worker_loses_nothing_and_makes_nothing_twice(two, tmp_path, cluster):
    mine = type("Deadly", (Deadly,), {"mark": str(tmp_path / "mark")})
    words = {"contenders": ["ecf", mine], "runs": 4}
    study = ab.sweep(two, DELAYS, **words, on="ray", shards=4, out=tmp_path / "ray")
    assert (tmp_path / "mark").exists(), "no worker was killed"
    assert (len(study), study.missing) == (16, 0)
    assert study.runs["status"] == ["ok"] * 16
    whole = ab.sweep(two, DELAYS, **words, out=tmp_path / "whole")
    assert whole.runs["trace_hash"] == study.runs["trace_hash"]
    assert tables(tmp_path / "ray") == tables(tmp_path / "whole")
    # A driver that starts again has nothing to do, and changes nothing.
    kept = {part: part.stat().st_mtime_ns for part in (tmp_path / "ray/parts").iterdir()}
    again = ab.sweep(two, DELAYS, **words, on="ray", out=tmp_path / "ray")
    assert again.runs["trace_hash"] == study.runs["trace_hash"]
    assert {part: part.stat().st_mtime_ns for part in kept} == kept


@pytest.mark.filterwarnings("default")
def test_an_exception_on_a_cluster_is_that_of_the_scheduler(two, cluster):
    class Broken(ab.Scheduler):
        def select(self, view):
            raise ZeroDivisionError("far away")

    with pytest.raises(ab.SchedulerError, match="ZeroDivisionError: far away"):
        ab.sweep(two, DELAYS, contenders=[Broken], runs=1, on="ray")


@pytest.mark.filterwarnings("default")
def test_control_c_on_a_cluster_keeps_what_is_done(two, tmp_path, cluster):
    def interrupt():
        limit = time.monotonic() + 60
        while time.monotonic() < limit:
            if any((tmp_path / "parts").glob("*.json")):
                break
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    words = {"contenders": ["ecf"], "runs": 10_000, "shards": 2_000}
    with pytest.raises(ab.Interrupted) as caught:
        ab.sweep(two, DELAYS, **words, on="ray", out=tmp_path)
    assert 0 < len(caught.value.study) < 20_000
