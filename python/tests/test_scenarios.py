"""Scenarios from text, files and objects, and what is said about mistakes in them."""

import datetime
import pickle
import re
import subprocess

import pytest

import anabranch as ab

from conftest import TWO


def test_a_scenario_of_objects_is_the_one_of_the_same_text(two):
    again = ab.Scenario.build(two.to_dict())
    assert again.to_toml() == two.to_toml()
    assert again == two


def test_a_time_may_be_a_timedelta(two):
    slow = two.with_value("path.a.forward.delay", datetime.timedelta(milliseconds=90))
    assert slow.to_dict()["path"][0]["forward"]["delay"] == "90000us"
    slow.check()


def test_a_scenario_can_be_sent_to_another_process(two):
    assert pickle.loads(pickle.dumps(two)) == two


def test_a_scenario_is_not_changed_by_what_is_made_of_it(two):
    before = two.to_toml()
    two.with_value("path.a.forward.rate", "1Mbit/s")
    two.run(contenders=["ecf"], runs=1)
    assert two.to_toml() == before


@pytest.mark.parametrize(
    ("wrong", "right", "said"),
    [
        ('rate = "10Mbit/s"', 'raet = "10Mbit/s"', "raet"),
        ('"10ms"', '"10m"', "10m"),
        ('kind = "bulk"', 'kind = "bulky"', "did you mean `bulk`?"),
        ('stop = "30s"', "stop = 30", "30 without a unit"),
    ],
)
def test_a_mistake_is_told_with_its_place_as_the_command_tells_it(
    wrong, right, said, command, tmp_path
):
    file = tmp_path / "wrong.toml"
    file.write_text(TWO.replace(wrong, right))
    with pytest.raises(ab.ScenarioError) as caught:
        ab.Scenario.load(file).check()
    error = caught.value
    assert said in str(error)
    assert error.file == str(file) and error.line > 1 and error.column >= 1
    told = subprocess.run(
        [command, "sim", "run", file], capture_output=True, text=True, timeout=60, check=False
    )
    assert told.returncode == 2
    assert str(error) in told.stderr


def test_text_that_is_no_toml_names_its_line():
    with pytest.raises(ab.ScenarioError, match=r"^x\.toml:2:") as caught:
        ab.Scenario.parse("a = 1\nb = = 2\n", "x.toml")
    assert caught.value.line == 2


def test_a_file_that_is_not_there_is_a_mistake_of_the_scenario(tmp_path):
    with pytest.raises(ab.ScenarioError, match="cannot read .*nowhere.toml"):
        ab.Scenario.load(tmp_path / "nowhere.toml")


def test_an_object_that_no_scenario_can_hold_is_named_with_its_key():
    said = re.escape("path.1.name: a scenario cannot hold a set")
    with pytest.raises(ab.ScenarioError, match=said):
        ab.Scenario.build(name="x", path=[{"name": {1, 2}}])
    with pytest.raises(ab.ScenarioError, match="is too large"):
        ab.Scenario.build(name="x", stop=2**70)
    with pytest.raises(ab.ScenarioError, match="is no number"):
        ab.Scenario.build(name="x", stop=float("nan"))
    endless: dict = {}
    endless["more"] = endless
    with pytest.raises(ab.ScenarioError, match="nested too deep"):
        ab.Scenario.build(endless)


def test_a_key_that_leads_nowhere_names_the_nearest(two):
    with pytest.raises(ab.ScenarioError, match="did you mean `a`"):
        two.with_value("path.aa.forward.rate", "1Mbit/s")


@pytest.mark.parametrize("contenders", [["blesd"], {"mine": {"scheduler": "blesd"}}])
def test_an_unknown_scheduler_is_told_with_the_nearest_name(two, contenders):
    with pytest.raises(ab.ScenarioError, match="did you mean `blest`"):
        two.run(contenders=contenders)


def test_contenders_that_make_no_sense_are_refused(two):
    with pytest.raises(ab.ScenarioError, match="two contenders are called `ecf`"):
        two.run(contenders=["ecf", "ecf"])
    with pytest.raises(ab.ScenarioError, match="a int is no scheduler"):
        two.run(contenders=[3])
    with pytest.raises(ab.ScenarioError, match="expected a list"):
        two.run(contenders="ecf")
    with pytest.raises(ab.ScenarioError, match="needs a name"):
        two.run(contenders=[{"scheduler": "ecf"}])
    with pytest.raises(ab.ScenarioError, match="no method select"):
        two.run(contenders=[dict])


def test_numbers_out_of_range_are_refused(two):
    for words in ({"runs": 0}, {"runs": -1}, {"seed": -1}, {"runs": 10**9}):
        with pytest.raises(ab.ScenarioError):
            two.run(contenders=["ecf"], **words)
    with pytest.raises(ValueError, match="jobs"):
        two.run(contenders=["ecf"], jobs=-1)
