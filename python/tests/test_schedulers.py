"""Schedulers written in Python: the same world, and no way to break it."""

import functools
import traceback

import pytest

import anabranch as ab


class Cheapest(ab.Scheduler):
    def select(self, view):
        path = min(view.ready, key=lambda p: (p.cost, p.smoothed_rtt), default=None)
        return view.send(path, "cheapest") if path else view.hold()


class LowestRtt(ab.Scheduler):
    """As the engine's min-rtt where nothing is lost."""

    def select(self, view):
        rank = lambda p: (p.smoothed_rtt == 0, p.smoothed_rtt, p.id)  # noqa: E731
        path = min(view.ready, key=rank, default=None)
        return view.send(path, "lowest") if path else view.hold("full")


def test_the_example_of_the_documentation_decides_by_cost():
    cheap = ab.ask(Cheapest, paths=[{"cost": 3}, {"cost": 1}])
    assert cheap == ab.Decision("send", (1,), "cheapest")
    full = {"cost": 1, "bytes_in_flight": 12_000}
    assert ab.ask(Cheapest, paths=[{"cost": 3}, full]).paths == (0,)
    assert ab.ask(Cheapest, paths=[full]).kind == "hold"


def test_a_scheduler_in_python_decides_every_packet_of_a_run(two):
    study = two.run(contenders=["min-rtt", Cheapest], runs=2)
    assert study.runs["status"] == ["ok"] * 4
    assert study.runs["contender"] == ["min-rtt", "Cheapest"] * 2
    assert study.runs["scheduler"][1] == "Cheapest"
    reasons = [row for row in study.reasons if row["reason"] == "cheapest"]
    assert len(reasons) == 2 and all(row["count"] > 300 for row in reasons)


def test_a_run_of_a_scheduler_in_python_is_the_same_twice(two):
    first, second = (two.run(contenders=[Cheapest], runs=2) for _ in range(2))
    assert first.runs["trace_hash"] == second.runs["trace_hash"]
    assert first.runs["run_id"] == second.runs["run_id"]


def test_the_same_policy_gives_the_same_packets_as_in_rust(two):
    sound = two.with_value("path.b.forward.loss", "0%")
    # Neither by chance nor by queues: min-rtt sends again elsewhere.
    sound = sound.with_value("path.*.forward.queue", "1s")
    study = sound.run(contenders=["min-rtt", LowestRtt], runs=1)
    assert set(study.paths["lost_declared"]) == {0}
    assert len(set(study.runs["trace_hash"])) == 1


def test_each_connection_has_an_object_of_its_own(two):
    made = []

    class Counting(Cheapest):
        def __init__(self, step=1):
            made.append(self)
            self.asked, self.step = 0, step

        def select(self, view):
            self.asked += self.step
            return super().select(view)

    two.run(contenders=[Counting], runs=3)
    asked = [one.asked for one in made if one.asked]
    assert len(asked) == 3
    made.clear()
    study = two.run(contenders={"ten": functools.partial(Counting, 10)}, runs=1)
    assert study.runs["scheduler"] == ["ten"]
    assert [one.asked % 10 for one in made] == [0] * len(made)
    # An object is copied for each connection and stays as it was.
    pattern = Counting()
    two.run(contenders=[pattern], runs=2)
    assert pattern.asked == 0


def test_a_scheduler_in_python_can_be_wrapped_and_named_by_a_scenario(two):
    named = two.with_value("contenders", {"mine": {"scheduler": "guard+Cheapest"}})
    study = named.run(schedulers=[Cheapest], runs=1)
    assert study.runs["scheduler"] == ["guard+Cheapest"]
    assert "cheapest" in study.reasons["reason"]


def test_two_schedulers_of_one_name_need_names_of_their_own(two):
    def another():
        class Cheapest(ab.Scheduler):
            def select(self, view):
                return view.hold()

        return Cheapest

    with pytest.raises(ab.ScenarioError, match="two schedulers are called Cheapest"):
        two.run(contenders=[Cheapest, another()])
    study = two.run(contenders={"first": Cheapest, "second": Cheapest}, runs=1)
    assert study.runs["trace_hash"][0] == study.runs["trace_hash"][1]


def test_an_exception_ends_the_run_with_its_traceback_and_the_virtual_time(two):
    class Broken(ab.Scheduler):
        def select(self, view):
            if view.now > 0.2:
                return {}["nothing"]
            return view.send(view.ready[0]) if view.ready else view.hold()

    with pytest.raises(ab.SchedulerError) as caught:
        two.run(contenders=["ecf", Broken], runs=2)
    error = caught.value
    assert isinstance(error.__cause__, KeyError)
    last = traceback.extract_tb(error.__cause__.__traceback__)[-1]
    assert last.line == 'return {}["nothing"]' and last.name == "select"
    assert 0.2 < error.virtual_time < 0.5
    assert "of virtual time: KeyError: 'nothing'" in str(error)
    assert (error.contender, error.repetition) == ("Broken", 1)
    assert all(who == "ecf" for who in error.study.runs["contender"])


def test_an_exception_may_be_a_row_of_the_results(two):
    class Broken(ab.Scheduler):
        def select(self, view):
            raise ValueError("I do not know")

    study = two.run(contenders=["ecf", Broken], runs=2, on_error="keep")
    assert study.runs["status"] == ["ok", "failed"] * 2
    assert "virtual time: ValueError: I do not know" in study.runs["reason"][1]
    assert [row[0] for row in study.failures()] == ["Broken"] * 2


@pytest.mark.parametrize("where", ["__init__", "on_event"])
def test_an_exception_outside_of_select_ends_the_run_too(two, where):
    def fail(self, *_):
        raise OSError(where)

    broken = type("Broken", (Cheapest,), {where: fail})
    with pytest.raises(ab.SchedulerError, match=where):
        two.run(contenders=[broken], runs=1)


def test_endless_recursion_is_an_exception_like_any_other(two):
    class Deep(ab.Scheduler):
        def select(self, view):
            return self.select(view)

    with pytest.raises(ab.SchedulerError) as caught:
        two.run(contenders=[Deep], runs=1)
    assert isinstance(caught.value.__cause__, RecursionError)


@pytest.mark.parametrize("rubbish", [None, 3, "send", object(), ("send", 0)])
def test_what_is_no_answer_counts_as_a_hold(two, rubbish):
    short = two.with_value("flow.1.bytes", "20kB")

    class Rubbish(ab.Scheduler):
        def select(self, view):
            view.ready and view.send(view.ready[0])
            return rubbish

    study = short.run(contenders=[Rubbish], runs=1)
    counts = {row["reason"]: row["count"] for row in study.reasons}
    assert counts["no-answer"] > 0
    assert study.runs["holds"][0] > 0


def test_an_answer_kept_from_an_earlier_call_is_none(two):
    class Stale(ab.Scheduler):
        kept = None

        def select(self, view):
            if self.kept is None and view.ready:
                self.kept = view.send(view.ready[0], "once")
            return self.kept

    study = two.with_value("flow.1.bytes", "20kB").run(contenders=[Stale], runs=1)
    counts = {row["reason"]: row["count"] for row in study.reasons}
    assert counts["once"] == 1 and counts["no-answer"] > 1


def test_an_answer_with_wrong_words_is_a_type_error(two):
    class Wrong(ab.Scheduler):
        def select(self, view):
            return view.send("lte")

    with pytest.raises(ab.SchedulerError) as caught:
        two.run(contenders=[Wrong], runs=1)
    assert isinstance(caught.value.__cause__, TypeError)

    class Never(ab.Scheduler):
        def select(self, view):
            return view.hold(until=float("nan"))

    with pytest.raises(ab.SchedulerError, match="NaN is no time"):
        two.run(contenders=[Never], runs=1)


def test_more_reasons_than_there_is_room_for_count_together(two):
    class Talkative(ab.Scheduler):
        said = 0

        def select(self, view):
            self.said += 1
            return view.send(view.ready[0], f"reason {self.said}") if view.ready else view.hold()

    study = two.run(contenders=[Talkative], runs=1)
    counts = {row["reason"]: row["count"] for row in study.reasons}
    assert counts["other"] > 0 and len(counts) <= 66


def test_views_are_the_same_objects_with_the_names_of_the_engine(two):
    seen = {}

    class Looking(Cheapest):
        def select(self, view):
            seen.setdefault("view", view)
            seen.setdefault("paths", {path.id: path for path in view.paths})
            assert view is seen["view"]
            for path in view.paths:
                assert path is seen["paths"].setdefault(path.id, path)
                assert path.can_send == (path in view.ready) or path not in view.candidates
                assert path.room == max(
                    0, path.congestion_window - path.bytes_in_flight - path.queued
                )
                assert path.status == "available" and path.state in ("active", "doubtful")
                for name in dir(path):
                    getattr(path, name)
            assert view.unit.kind in ("fresh", "retransmission")
            assert view.unit.bytes > 0 and view.backlog.total > 0
            assert isinstance(view.ready, tuple) and set(view.ready) <= set(view.candidates)
            assert view.streams == ()
            return super().select(view)

    assert two.run(contenders=[Looking], runs=1).runs["status"] == ["ok"]
    assert sorted(path.cost for path in seen["paths"].values()) == [0, 3]


def test_events_tell_what_became_of_packets(two):
    kinds = {}

    class Listening(Cheapest):
        def on_event(self, event):
            kinds[event.kind] = kinds.get(event.kind, 0) + (event.bytes or 0)
            assert event.rtt is None or event.rtt > 0.01

    two.run(contenders=[Listening], runs=1)
    assert kinds["acked"] >= 500_000 and kinds["sent"] >= kinds["acked"]
    assert {"opened", "written"} <= set(kinds)


def test_every_form_of_answer_is_carried_out(two):
    class Twice(ab.Scheduler):
        def select(self, view):
            if len(view.ready) == 2:
                return view.duplicate(view.ready, "both")
            if len(view.paths) == 2 or not view.ready:
                return view.hold(until=view.now + 1.0)
            return view.send_at(view.ready[0], 0, "at")

    class Streams(Cheapest):
        wants_streams = True

        def select(self, view):
            if view.ready and view.streams:
                return view.send_stream(view.ready[0], view.streams[0], "stream")
            return super().select(view)

    class Copies(Cheapest):
        wants_copies = True

        def select(self, view):
            for path in view.ready:
                if path.copyable:
                    return view.copy(path, "copy")
            return super().select(view)

    study = two.run(contenders=[Twice, Streams, Copies], runs=1)
    assert study.runs["status"] == ["ok"] * 3
    assert {"both", "at", "stream", "copy"} <= set(study.reasons["reason"])
    twice = study.runs["duplicate_bytes"]
    assert twice[0] > 100_000 and twice[2] > 0


def test_a_chunk_is_one_decision_for_many_packets(two):
    class Chunky(Cheapest):
        chunk = "16kB"

    study = two.run(contenders=[Cheapest, Chunky], runs=1)
    counts = [row["count"] for row in study.reasons if row["reason"] == "cheapest"]
    assert counts[1] < counts[0] / 4


def test_a_scheduler_conforms_or_is_told_what_it_breaks():
    class Never(ab.Scheduler):
        def select(self, view):
            return view.hold()

    report = ab.conform(Never)
    assert not report and not report.conforms
    assert {"rule", "network", "verdict", "figure"} <= set(report.columns)
    assert "best path" in {row["rule"] for row in report.broken()}
    assert "does not conform" in str(report)
    with pytest.raises(ab.SpecError, match="did you mean `blest`"):
        ab.conform("blesd")


def test_an_exception_ends_a_check_with_its_cause():
    class Broken(ab.Scheduler):
        def select(self, view):
            raise ZeroDivisionError

    with pytest.raises(ab.SchedulerError, match="virtual time") as caught:
        ab.conform(Broken)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(ab.SchedulerError) as caught:
        ab.promise(Broken, worlds=1)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_the_promise_is_measured_over_the_worlds_of_the_command():
    ours, theirs = ab.promise(LowestRtt, worlds=3), ab.promise("min-rtt", worlds=3)
    assert ours["seed"] == theirs["seed"] == [1, 2, 3]
    assert ours["best"] == theirs["best"]
    assert [bar.factor for bar in ours.bars()] == [1.02, 1.10]


def test_a_panic_in_a_measurement_is_a_fault_of_ours():
    # More worlds than memory could ever have room for: the list of their seeds panics at once.
    with pytest.raises(ab.InternalError, match="a fault of anabranch: capacity overflow"):
        ab.promise("min-rtt", worlds=2**63)


def test_a_mistake_in_what_is_asked_names_the_nearest():
    with pytest.raises(ab.ScenarioError, match="did you mean `cost`"):
        ab.ask("ecf", paths=[{"cots": 1}])
    with pytest.raises(ab.SpecError, match="did you mean `blest`"):
        ab.ask("blesd", paths=[{}])
