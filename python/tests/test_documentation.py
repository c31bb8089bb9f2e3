"""The code of the documentation and the examples runs as it stands."""

import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest

#: What makes an example shorter than it is for its readers.
SHORTER = {"learn.py": ["--episodes", "60"]}
HERE = Path(__file__).resolve().parent.parent
#: The pages beside the package, where tests run on a copy of it, or in the tree.
PAGES = next(place for place in (HERE / "docs", HERE.parent / "docs/python") if place.is_dir())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    import matplotlib

    matplotlib.use("agg")
    shutil.copy(HERE / "examples/dsl-and-lte.toml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.name)
def test_the_code_of_a_page_runs_from_its_beginning_to_its_end(page, folder):
    text = page.read_text(encoding="utf-8")
    blocks = re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    names: dict[str, object] = {}
    count = 0
    for block in blocks:
        line = text[: block.start(1)].count("\n")
        code = "\n" * line + block.group(1)
        exec(compile(code, str(page), "exec"), names)  # noqa: S102
        count += 1
    assert count > 0


@pytest.mark.parametrize("example", sorted((HERE / "examples").glob("*.py")), ids=lambda e: e.name)
def test_an_example_runs_to_its_end(example, folder, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [example.name, *SHORTER.get(example.name, [])])
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out
