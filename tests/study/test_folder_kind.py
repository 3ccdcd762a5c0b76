"""Commands that want the folder of a run say what a folder is that is none."""

from pathlib import Path

import pytest

from sim.cli.app import run_app
from tests.study.studies import chat_study, queue_study, write_study

GRID = ("--grid", "engine.max_num_seqs=1,64")
MAKERS = {
    "sweep": (chat_study(30), ("sweep", "STUDY", *GRID, "--jobs", "1"), "a sweep"),
    "curve": (chat_study(30), ("curve", "STUDY", "--concurrency", "1,2", "--jobs", "1"), "a curve"),
    "advise": (chat_study(30), ("advise", "STUDY", *GRID, "--jobs", "1"), "an advice"),
    "compare": (
        chat_study(30),
        ("compare", "STUDY", "--key", "engine.max_num_seqs=1,64", "--seeds", "1", "--jobs", "1"),
        "a comparison",
    ),
    "capacity": (
        queue_study(150, 0.3),
        ("capacity", "STUDY", "--slo", "ttft_mean_s=3", "--accept-short", "--jobs", "1"),
        "a capacity answer",
    ),
}
WANT_A_RUN = (
    ("check", "FOLDER"),
    ("explain", "FOLDER", "3"),
    ("timeline", "FOLDER"),
    ("trace", "export", "FOLDER", "out.csv"),
    ("compare-measured", "FOLDER", "result.json"),
)


def call(arguments: tuple[str, ...], **given: Path) -> int:
    return run_app([str(given.get(part, part)) for part in arguments])


@pytest.mark.parametrize("maker", MAKERS)
def test_a_folder_of_another_kind_is_named_and_has_a_page(tmp_path, capsys, maker):
    values, arguments, words = MAKERS[maker]
    folder = tmp_path / "out"
    study = write_study(tmp_path, values)
    assert call((*arguments, "--out", "FOLDER"), STUDY=study, FOLDER=folder) == 0
    for command in WANT_A_RUN:
        capsys.readouterr()
        assert call(command, FOLDER=folder) == 2
        said = capsys.readouterr().err
        assert f"{folder}: is the folder of a" in said and words.split()[-1] in said
        assert "not of a run (`headway run` makes those)" in said
    assert call(("report", "FOLDER"), FOLDER=folder) == 0


@pytest.mark.parametrize("command", [*WANT_A_RUN, ("report", "FOLDER")], ids=lambda c: c[0])
def test_what_is_no_folder_of_headway_is_said_to_be_none(tmp_path, capsys, command):
    file = tmp_path / "file"
    file.write_text("")
    said = {
        tmp_path / "nosuch": "no such folder",
        file: "is a file, no folder",
        tmp_path: "has no summary.json" if command[0] != "report" else "is no folder of any kind",
    }
    for folder, words in said.items():
        assert call(command, FOLDER=folder) == 2
        text = capsys.readouterr().err
        assert f"{folder}: " in text and words in text
