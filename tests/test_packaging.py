"""What a new user meets first: the README's two lines, the packages, the shipped files."""

import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.resources import files
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from sim.config.schema import EngineSection, StudyFile

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGES = ("sim", "policies", "traces", "calibration")
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
README = (CHECKOUT / "README.md").read_text()
CI = (CHECKOUT / ".ci" / "run").read_text()


def commands_of_readme() -> list[str]:
    """Lines of the README's shell blocks."""
    blocks: list[str] = re.findall(r"^```sh\n(.*?)^```", README, re.M | re.S)
    return [line for block in blocks for line in block.splitlines()]


@pytest.mark.parametrize("name", PACKAGES)
def test_each_package_is_the_one_of_this_checkout(name: str) -> None:
    """Three of the names are other people's distributions too."""
    place = import_module(name).__file__
    assert place is not None
    assert Path(place).resolve().is_relative_to(CHECKOUT)


def test_the_readme_opens_with_what_it_is_then_one_line_that_runs_it() -> None:
    commands = commands_of_readme()
    assert commands[0] == (
        "python3 -m venv .venv && .venv/bin/pip install -q . && .venv/bin/headway run"
    )
    assert README.index("Headway is") < README.index(commands[0])


def test_ci_runs_the_very_line_that_the_readme_gives_for_the_tests() -> None:
    lines = [line for line in commands_of_readme() if "pytest" in line]
    assert len(lines) == 1
    assert lines[0] in CI.splitlines()


def test_the_readme_names_every_key_of_a_study() -> None:
    keys = [*StudyFile.model_fields, *EngineSection.model_fields]
    missing = [key for key in keys if f"`{key}`" not in README]
    assert not missing


def test_the_readme_shows_what_the_sample_prints(tmp_path: Path) -> None:
    """The block is real output, but for spaces at the ends of lines."""
    (block,) = re.findall(r"^```\n(Latency of finished requests\n.*?)^```", README, re.M | re.S)
    run = subprocess.run(
        [sys.executable, "-m", "sim.cli", "run", "--no-plots"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTHONIOENCODING": "utf-8"},
        check=True,
    )
    printed = [line.rstrip() for line in run.stdout.splitlines()]
    assert printed == block.splitlines()


def test_the_tour_of_a_run_goes_with_what_is_shipped(tmp_path: Path) -> None:
    """The lines that make its files, then those about one run, as they stand in the README."""
    for folder in ("sim", "traces"):
        (tmp_path / folder).symlink_to(CHECKOUT / folder)
    commands = commands_of_readme()
    (first,) = [i for i, line in enumerate(commands) if line.startswith("cp ")]
    (last,) = [i for i, line in enumerate(commands) if line.endswith(" timeline a-run --to 10")]
    tour = commands[first : last + 1]
    assert any("explain" in line for line in tour)
    for line in tour:
        done = subprocess.run(
            line.replace(".venv/bin/headway", f"{sys.executable} -m sim.cli"),
            shell=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("sim.studies", "sample.yaml"),
        ("traces.samples", "chat.jsonl"),
        ("traces.samples", "README.md"),
        ("calibration", "data/models.json"),
        ("calibration", "data/gpus.json"),
    ],
)
def test_shipped_files_are_where_the_package_is(package: str, name: str) -> None:
    assert (files(package) / name).is_file()


def test_constraints_pin_every_dependency_and_install_nothing_else() -> None:
    lines = (CHECKOUT / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert all(str(pin.specifier).startswith("==") for pin in pins)
    pinned = {pin.name.lower().replace("_", "-") for pin in pins}
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
    assert {Requirement(text).name.lower().replace("_", "-") for text in wanted} <= pinned


def test_dependencies_allow_the_pinned_versions() -> None:
    lines = (CHECKOUT / "constraints.txt").read_text().splitlines()
    pins = dict(line.lower().split("==") for line in lines if "==" in line and line[0] != "#")
    for text in PROJECT["dependencies"]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(pins[requirement.name.lower()]), text


def test_this_python_is_one_that_the_project_supports() -> None:
    version = ".".join(map(str, sys.version_info[:3]))
    assert SpecifierSet(PROJECT["requires-python"]).contains(version)


def test_pre_commit_hooks_are_local() -> None:
    config = yaml.safe_load((CHECKOUT / ".pre-commit-config.yaml").read_text())
    assert [repo["repo"] for repo in config["repos"]] == ["local"]


def test_licence_and_changelog_are_there() -> None:
    assert "Apache License" in (CHECKOUT / "LICENSE").read_text()
    assert PROJECT["version"] in (CHECKOUT / "CHANGELOG.md").read_text()
