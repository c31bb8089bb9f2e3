"""Results: equal to the command's, as tables, as comparisons, on disk."""

import csv
import json
import subprocess
import sys

import polars
import pyarrow
import pytest

import anabranch as ab

from conftest import TWO


def test_the_same_seed_gives_the_trace_of_the_command(two, command, tmp_path):
    file = tmp_path / "two.toml"
    file.write_text(TWO)
    told = subprocess.run(
        [command, "sim", "run", file, "--json"],
        capture_output=True, text=True, timeout=120, check=True,
    )
    theirs = [json.loads(line) for line in told.stdout.splitlines()]
    ours = list(two.run(jobs=1).runs)
    assert len(ours) == len(theirs) == 3
    for one, other in zip(ours, theirs, strict=True):
        for column in ("run_id", "seed", "trace_hash", "goodput_bps", "contender"):
            assert one[column] == other[column], column


def test_runs_do_not_depend_on_the_number_of_threads(two):
    words = {"contenders": ["tail+min-rtt", "ecf"], "runs": 3}
    one, several = two.run(jobs=1, **words), two.run(jobs=4, **words)
    assert one.runs["trace_hash"] == several.runs["trace_hash"]
    assert one.runs["run_id"] == several.runs["run_id"]


def test_every_table_is_read_through_arrow_with_its_types(two):
    study = two.with_value("record.decisions", True).run(contenders=["ecf"], runs=2)
    for name in ("runs", "paths", "series", "reasons", "decisions"):
        table = study.table(name)
        frame, arrow = polars.DataFrame(table), pyarrow.table(table)
        assert len(table) == frame.height == arrow.num_rows > 0
        assert table.columns == frame.columns == arrow.column_names
        assert table.to_pandas().shape == frame.shape
        for column in table.columns:
            assert frame[column].to_list() == table[column]
    runs = study.runs.to_polars()
    assert runs.schema["goodput_bps"] == polars.Float64
    assert runs.schema["repetition"] == polars.Int64
    assert runs.schema["seed"] == polars.String
    assert study.runs.to_arrow().schema.field("bytes").metadata[b"about"]


def test_a_stream_can_be_left_unread(two):
    runs = two.run(contenders=["ecf"], runs=1).runs
    for _ in range(3):
        runs.__arrow_c_stream__()
        runs.__arrow_c_schema__()
    assert runs.to_polars().height == 1


def test_a_swept_value_is_a_column_and_a_column_of_numbers(two):
    delays = ["10ms", "60ms"]
    study = two.run(contenders=["ecf"], runs=2, sweep={"path.b.forward.delay": delays})
    assert study.runs["p.path.b.forward.delay"] == ["10ms", "10ms", "60ms", "60ms"]
    assert study.runs["p.path.b.forward.delay_s"] == [0.01, 0.01, 0.06, 0.06]


def test_a_comparison_is_paired_and_has_its_interval(two):
    study = two.run(contenders={"both": "ecf", "one": {"scheduler": "ecf", "paths": ["b"]}}, runs=6)
    (row,) = study.compare("both")
    assert (row["contender"], row["baseline"], row["pairs"]) == ("one", "both", 6)
    assert row["low"] <= row["ratio"] <= row["high"] < 0.6
    assert 0 < row["p"] < 0.05
    goodputs = {who: [] for who in ("both", "one")}
    for run in study.runs:
        goodputs[run["contender"]].append(run["goodput_bps"])
    product = 1.0
    for ours, theirs in zip(goodputs["one"], goodputs["both"], strict=True):
        product *= ours / theirs
    assert row["ratio"] == pytest.approx(product ** (1 / 6))
    assert "one: 0." in str(study.compare("both"))


def test_a_name_that_the_results_do_not_have_is_told_with_the_nearest(two):
    study = two.run(contenders=["ecf", "blest"], runs=1)
    with pytest.raises(ab.ColumnError, match="did you mean `blest`"):
        study.compare("blast")
    with pytest.raises(ab.ColumnError, match="did you mean `goodput_bps`"):
        study.compare("ecf", "goodput_bsp")
    with pytest.raises(ab.ColumnError, match="did you mean `bytes`"):
        study.runs["byte"]
    with pytest.raises(ab.ColumnError, match="there is no table"):
        study.table("rums")


def test_a_folder_of_results_is_that_of_the_command_and_is_not_run_again(two, tmp_path):
    out = tmp_path / "out"
    first = two.run(contenders=["ecf"], runs=2, out=out)
    with open(out / "runs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["trace_hash"] for row in rows] == first.runs["trace_hash"]
    again = two.run(contenders=["ecf"], runs=2, out=out)
    # Time by the clock is the same only if nothing was run.
    assert again.runs["wall_s"] == first.runs["wall_s"]
    more = two.run(contenders=["ecf"], runs=3, out=out)
    assert len(more) == 3 and more.runs["wall_s"][:2] == first.runs["wall_s"]


def test_results_of_another_scenario_are_not_mixed(two, tmp_path):
    two.run(contenders=["ecf"], runs=1, out=tmp_path)
    with pytest.raises(ab.StoreError, match="results of another scenario"):
        ab.Scenario.template().run(contenders=["ecf"], runs=1, out=tmp_path)


def test_plots_are_drawn_without_a_display(two):
    import matplotlib

    matplotlib.use("agg")
    study = two.run(contenders=["ecf", "blest", "redundant"], runs=3)
    axes = study.compare("ecf").plot()
    assert [text.get_text() for text in axes.get_yticklabels()] == ["blest", "redundant"]
    assert "goodput_bps" in axes.get_xlabel()


def test_an_optional_package_that_is_missing_is_named(two, monkeypatch):
    study = two.run(contenders=["ecf", "blest"], runs=1)
    for module in ("matplotlib", "polars", "pandas", "pyarrow"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ab.MissingError, match="pip install matplotlib"):
        study.compare("ecf").plot()
    with pytest.raises(ab.MissingError, match="pip install polars"):
        study.runs.to_polars()
    assert study.runs["status"] == ["ok", "ok"]


def test_a_table_shows_itself_in_a_notebook(two):
    table = two.run(contenders=["ecf"], runs=1).paths
    shown = table._repr_html_()
    assert shown.startswith("<table>") and "utilisation" in shown
    assert table.about()["share"] == "share of all bytes sent"


def test_a_folder_that_is_written_has_the_files_its_scenario_names(two, tmp_path):
    (tmp_path / "source").mkdir()
    trace = tmp_path / "source/lte.trace"
    trace.write_text("\n".join(str(at) for at in range(1, 101)) + "\n")
    text = two.with_value("path.b.forward", {"trace": "lte.trace", "delay": "30ms"}).to_toml()
    (tmp_path / "source/two.toml").write_text(text)
    scenario = ab.Scenario.load(tmp_path / "source/two.toml")
    study = scenario.run(contenders=["ecf"], runs=1, out=tmp_path / "run")
    study.write(tmp_path / "written")
    ab.merge([tmp_path / "run"], out=tmp_path / "merged")
    trace.unlink()
    for folder in ("run", "written", "merged"):
        ab.Scenario.load(tmp_path / folder / "campaign.toml").check()
