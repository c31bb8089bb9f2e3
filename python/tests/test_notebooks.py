"""The notebooks run as they stand, from their first cell to their last."""

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent.parent
#: No cell takes longer, in seconds.
BOUND = 240


@pytest.mark.parametrize(
    "notebook", sorted((HERE / "notebooks").glob("*.ipynb")), ids=lambda notebook: notebook.stem
)
def test_a_notebook_runs_to_its_end(notebook, tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    # The kernel is another process; it finds the package where this one does.
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    content = nbformat.read(notebook, as_version=4)
    assert all(not cell.get("outputs") for cell in content.cells), "commit it without outputs"
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(content, timeout=BOUND, resources=resources).execute()
    figures = [
        output
        for cell in content.cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]
    assert figures, "it shows no figure"
