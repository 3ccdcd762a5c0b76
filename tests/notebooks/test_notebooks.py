"""Every notebook runs from top to bottom, and was kept as it runs: with outputs, without errors."""

import re
import tempfile
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="notebooks need the dev extra")
nbclient = pytest.importorskip("nbclient", reason="notebooks need the dev extra")
pytest.importorskip("ipykernel", reason="notebooks need the dev extra")

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_prints_what_it_kept(path, tmp_path, monkeypatch):
    """Text outputs must be the kept ones: the same study gives the same figures.

    Of cells that time this machine (tagged `timed`) all but the numbers must be.
    """
    if path.name.startswith("2_"):
        pytest.importorskip("torch", reason="needs PyTorch")
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent))
    kept = nbformat.read(path, as_version=4)
    fresh = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(fresh, timeout=300, resources=resources).execute()
    for before, after in zip(kept.cells, fresh.cells, strict=True):
        if before.cell_type == "code":
            is_timed = "timed" in before.metadata.get("tags", [])
            old, new = (without_numbers(t) if is_timed else t for t in map(texts, (before, after)))
            assert new == old, "run it again and keep its outputs"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_a_lesson(path):
    """It begins with a title, says more than it computes, and every code cell has been run."""
    cells = nbformat.read(path, as_version=4).cells
    assert cells[0].cell_type == "markdown" and cells[0].source.startswith("# ")
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    assert sum(cell.cell_type == "markdown" for cell in cells) >= len(code) - 3
    assert any(cell.outputs for cell in code)
    # Outputs are the same on every machine: none of them names a folder of this one.
    for folder in (Path(__file__).resolve().parents[2], Path(tempfile.gettempdir()), Path.home()):
        assert f"{folder}/" not in path.read_text()


def test_the_notebooks_are_there():
    assert [path.name[:2] for path in NOTEBOOKS] == [f"{i}_" for i in range(1, 7)]


def texts(cell) -> list[str]:
    """What a cell printed, as one, and showed as text; pictures may differ by a pixel.

    How printed text is cut into outputs is the kernel's timing, not the lesson's.
    """
    shown = [""]
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stdout":
            shown[0] += output.text
        elif "text/plain" in output.get("data", {}):
            shown.append(output.data["text/plain"])
    return shown


NUMBER = re.compile(r"[+-]?(\d[\d,]*(\.\d+)?|nan)(%|e[+-]\d+)?")


def without_numbers(shown: list[str]) -> list[str]:
    """The same with every number, and the blanks that line them up, replaced."""
    return [re.sub(r" +", " ", NUMBER.sub("#", text)) for text in shown]
