"""Profiles: interpolation of straight lines, coverage, matching, bad files."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration import (
    CalibrationError,
    ProfileCost,
    StepShape,
    decode_shape,
    load_gpu,
    load_model,
    load_profile,
    parse_profile,
    read_profile,
)
from calibration.interpolation import Grid, Line
from calibration.profile_writing import write_profile
from tests.calibration.cost_models import profile_document, second_document, skewed_document

LLAMA, H100 = load_model("llama-3.1-8b"), load_gpu("h100")
STUDY: dict[str, Any] = {
    "model": LLAMA,
    "gpu": H100,
    "tensor_parallel_size": 1,
    "kv_cache_dtype": "auto",
}


def write(folder: Path, document: Any) -> Path:
    file = folder / "profile.json"
    file.write_text(json.dumps(document))
    return file


def edited(path: str, value: Any) -> dict[str, Any]:
    """The good profile with one entry changed; a value of `...` leaves it out."""
    document = copy.deepcopy(profile_document())
    *parents, last = path.split(".")
    place: Any = document
    for parent in parents:
        place = place[int(parent)] if isinstance(place, list) else place[parent]
    key: Any = int(last) if isinstance(place, list) else last
    if value is ...:
        del place[key]
    else:
        place[key] = value
    return document


def test_straight_tables_are_read_back_between_their_points() -> None:
    cost = ProfileCost(parse_profile(profile_document(), "p"))
    chunks = ((100, 700), (5000, 3000))
    shape = StepShape(5100 + 20, 21, 20, 20 * 1000, chunks)
    dense_us, logits_us = 5000 + 20 * 5120, 300 + 21
    decode_us = 40 + 0.01 * 20 * 1000
    prefill_us = sum(10 + new + 0.5 * computed for new, computed in chunks)
    expected_us = dense_us + logits_us + decode_us + prefill_us + 100
    assert cost.step_time_s(shape) == pytest.approx(expected_us * 1e-6, rel=1e-12)


def test_interpolation_is_linear_not_logarithmic() -> None:
    line = Line([1.0, 16.0], [1.0, 16.0])
    assert line.at(4.0) == 4.0
    assert line.at(8.5) == 8.5


def test_beyond_the_points() -> None:
    line = Line([2.0, 4.0], [10.0, 14.0])
    assert (line.at(1.0), line.at(2.0), line.at(4.0), line.at(10.0)) == (10.0, 10.0, 14.0, 26.0)
    falling = Line([2.0, 4.0], [10.0, 9.0])
    assert (falling.at(3.0), falling.at(100.0)) == (9.5, 9.0)


@settings(max_examples=100, deadline=None)
@given(
    y=st.lists(st.floats(1e-6, 1.0), min_size=4, max_size=4),
    x=st.lists(st.floats(-10, 1e6), min_size=1, max_size=20),
)
def test_scalar_and_vector_lines_are_the_same_bits(y: list[float], x: list[float]) -> None:
    line = Line([1, 16, 300, 4096], y)
    assert line.at_each(np.array(x)).tolist() == [line.at(value) for value in x]


def test_grid_is_bilinear_and_passes_through_its_points() -> None:
    rows, columns = [1.0, 10.0, 100.0], [0.0, 50.0, 60.0]
    values = [[1.0, 2.0, 7.0], [3.0, 3.5, 9.0], [30.0, 31.0, 32.0]]
    grid = Grid(rows, columns, values)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            assert grid.at(row, column) == pytest.approx(values[i][j])
            assert grid.row(row).at(column) == pytest.approx(values[i][j])
    assert grid.at(5.5, 25.0) == pytest.approx((1 + 2 + 3 + 3.5) / 4)
    assert grid.at(5.5, 25.0) == pytest.approx(grid.row(5.5).at(25.0))
    assert grid.at(10.0, 70.0) == pytest.approx(9 + 5.5)
    assert grid.at(0.0, -5.0) == 1.0


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (decode_shape(8, 8 * 1000), None),
        (StepShape(512, 1, 0, 0, ((512, 0),)), None),
        (StepShape(512, 0, 0, 0, ((512, 0),)), None),
        (decode_shape(300, 300 * 10), "num_decodes 300 is outside the measured 1 to 256"),
        (decode_shape(1, 40_000), "mean decode context 40000 is outside"),
        (StepShape(9000, 1, 0, 0, ((9000, 0),)), "num_tokens 9000 is outside the measured 1 to"),
        (StepShape(100, 1, 0, 0, ((100, 20_000),)), "computed tokens of a chunk 20000"),
    ],
)
def test_steps_beyond_the_tables_are_named(shape: StepShape, reason: str | None) -> None:
    cost = ProfileCost(parse_profile(profile_document(), "p"))
    said = cost.out_of_range(shape)
    assert said is None if reason is None else said is not None and reason in said
    assert cost.step_time_s(shape) > 0


def test_files_round_trip(tmp_path: Path) -> None:
    profile = read_profile(write(tmp_path, profile_document() | {"fit": {"mape": 0.02}}))
    again = parse_profile(profile.to_json(), profile.path, profile.sha256)
    assert again == profile
    assert len(profile.sha256) == 64


def test_a_matching_study_is_accepted_and_reported(tmp_path: Path) -> None:
    cost = load_profile(write(tmp_path, profile_document()), **STUDY)
    provenance = cost.provenance
    assert provenance.calibrated
    for part in ("h100-sxm-80gb", "flash-attention 3", "bfloat16", "2026-01-31"):
        assert part in provenance.label
    assert provenance.details["torch"] == "2.8.0"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": load_model("qwen3-8b")}, "measured with model llama-3.1-8b, .* qwen3-8b"),
        ({"model": load_model("llama-3.1-8b", "fp8")}, "weight dtype bfloat16, .* fp8"),
        ({"gpu": load_gpu("a100")}, "device h100-sxm-80gb, .* a100-sxm-80gb"),
        ({"tensor_parallel_size": 2}, "tensor_parallel_size 1, .* 2"),
        ({"kv_cache_dtype": "fp8"}, "KV cache dtype bfloat16, .* fp8"),
    ],
)
def test_a_profile_of_something_else_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(CalibrationError, match=message):
        load_profile(write(tmp_path, profile_document()), **(STUDY | changes))


@pytest.mark.parametrize(("factor", "unit"), [(1e-3, "milliseconds"), (1e3, "nanoseconds")])
def test_a_wrong_unit_is_suspected(tmp_path: Path, factor: float, unit: str) -> None:
    times = [time_us * factor for time_us in profile_document()["tables"]["dense"]["time_us"]]
    with pytest.raises(CalibrationError, match=f"are the times {unit}"):
        load_profile(write(tmp_path, edited("tables.dense.time_us", times)), **STUDY)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("format", "other", "not a profile"),
        ("format", ..., "not a profile"),
        ("schema_version", 4, "schema_version is 4; this release reads 1, 2, 3"),
        ("schema_version", ..., "schema_version is None"),
        ("schema_version", True, "schema_version is True"),
        ("step_overhead_us", -1, "step_overhead_us: is -1"),
        ("step_overhead_us", ..., "step_overhead_us is missing"),
        ("fit", [1], "fit: must be an object"),
        ("tabels", {}, "unknown key 'tabels'; did you mean 'tables'"),
        ("tables.dense", ..., "dense is missing"),
        ("tables.dens", {}, "unknown key 'dens'; did you mean 'dense'"),
        ("tables.dense", [], "tables.dense: must be an object"),
        ("tables.dense.num_tokens", ..., "num_tokens is missing"),
        ("tables.dense.num_tokens.1", 1, r"num_tokens\[1\]: 1 stands there twice"),
        ("tables.dense.num_tokens.1", 0.5, r"num_tokens\[1\]: 0.5 comes after 1"),
        ("tables.dense.num_tokens.0", -3, "a count is 0 or more"),
        ("tables.dense.num_tokens.0", "1", "'1'; it must be a number"),
        ("tables.dense.time_us.2", None, r"time_us\[2\]: is empty; a table has no gaps"),
        ("tables.dense.time_us.2", ..., "has 4 entries for 5 points"),
        ("tables.dense.time_us.2", -1, "is -1; a measured time is above 0"),
        ("tables.dense.time_us.2", 0, "is 0; a measured time is above 0"),
        ("tables.dense.time_us.2", float("nan"), "is nan; it must be finite"),
        ("tables.dense.time_us.2", float("inf"), "is inf; it must be finite"),
        ("tables.dense.time_us", 7, "must be a list"),
        ("tables.decode_attention.time_us.1", ..., "has 3 entries for 4 points"),
        ("tables.decode_attention.time_us.1.2", ..., r"time_us\[1\]: has 3 entries for 4"),
        ("tables.decode_attention.num_decodes", [1], "has 1 points; at least 2"),
        ("tables.prefill_attention.new_tokens", ..., "new_tokens is missing"),
        ("provenance", ..., "provenance is missing"),
        ("provenance.device", ..., "device is missing"),
        ("provenance.device", 5, "device: is 5; it must be a text"),
        ("provenance.tensor_parallel_size", "1", "must be a whole number"),
        ("provenance.divice", "x", "unknown key 'divice'; did you mean 'device'"),
    ],
)
def test_bad_files_name_the_entry(tmp_path: Path, path: str, value: Any, message: str) -> None:
    file = write(tmp_path, edited(path, value))
    with pytest.raises(CalibrationError, match=message) as error:
        load_profile(file)
    assert str(file) in str(error.value)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON document."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [path, *(place for key, item in items for place in _places(item, (*path, key)))]


@settings(max_examples=300, deadline=None)
@given(
    place=st.sampled_from(_places(profile_document())[1:]),
    junk=st.sampled_from([None, True, -1, 0, 7, "", "x", [], [1], [[]], {}, {"a": 1}, 1e400]),
)
def test_junk_anywhere_gives_a_profile_or_one_clear_error(
    place: tuple[Any, ...], junk: Any
) -> None:
    document: Any = copy.deepcopy(profile_document())
    parent = document
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = junk
    try:
        cost = ProfileCost(parse_profile(document, "profile.json"))
    except CalibrationError as error:
        assert str(error).startswith("profile.json: ")
    else:
        assert cost.step_time_s(decode_shape(4, 400)) > 0


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="can't be read as a profile"):
        load_profile(tmp_path / "none.json")
    file = tmp_path / "profile.json"
    for content in (b"", b"{", b"\xff\xfe"):
        file.write_bytes(content)
        with pytest.raises(CalibrationError, match="not valid JSON"):
            load_profile(file)
    file.write_text("[]")
    with pytest.raises(CalibrationError, match="not a profile"):
        load_profile(file)


def test_a_written_profile_is_whole_or_not_there(tmp_path: Path) -> None:
    profile = parse_profile(skewed_document(), "p.json")
    write_profile(profile, tmp_path / "p.json")
    assert read_profile(tmp_path / "p.json").to_json() == profile.to_json()
    (tmp_path / "taken").mkdir()
    with pytest.raises(CalibrationError, match=r"taken: can't be written"):
        write_profile(profile, tmp_path / "taken")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["p.json", "taken"]


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        ("share", [0.5, 1.5, 0.1], r"decode_skew.share\[1\]: is 1.5; a share is from 0 to 1"),
        ("share", [0.5, 0.1], "has 2 entries for 3 points"),
        ("num_decodes", [2, 2, 64], "2 stands there twice"),
    ],
)
def test_bad_shares_name_the_entry(entry: str, value: Any, message: str) -> None:
    document = skewed_document()
    document["tables"]["decode_skew"] = document["tables"]["decode_skew"] | {entry: value}
    with pytest.raises(CalibrationError, match=message):
        parse_profile(document, "p.json")


def test_older_schemas_have_no_skew() -> None:
    profile = parse_profile(second_document(), "p.json")
    assert profile.decode_skew is None and profile.to_json()["schema_version"] == 2
    document = skewed_document() | {"schema_version": 2}
    with pytest.raises(CalibrationError, match="unknown key 'decode_skew'"):
        parse_profile(document, "p.json")
    flag = skewed_document()
    flag["provenance"]["expert_parallel"] = "yes"
    with pytest.raises(CalibrationError, match="expert_parallel: is 'yes'; it must be true or fal"):
        parse_profile(flag, "p.json")
