"""Predictions of measured systems: the targets on a few rows, and broken data refused."""

from pathlib import Path

import numpy as np
import pytest

from calibration import CostModel, GpuSpec, ModelSpec, shipped_profile
from sim.errors import StudyError
from sim.validate import (
    HARNESSES,
    SILICON_STUDIES,
    Comparison,
    SiliconRow,
    find_bench_runs,
    predict_bench_run,
    predict_row,
    read_silicon_rows,
)
from sim.validate.comparison import by_group, tpot_summary, ttft_summary
from sim.validate.ranking import tpot_order


def shipped(model: ModelSpec, gpu: GpuSpec, tp: int, kv_cache_dtype: str) -> CostModel:
    cost = shipped_profile(model, gpu, tp, kv_cache_dtype)
    assert cost is not None
    return cost


@pytest.fixture(scope="module")
def rows(shared_dir: Path) -> list[SiliconRow]:
    return read_silicon_rows(shared_dir / "data" / "truth" / "silicon" / "silicon_vllm_part.csv")


def test_qwen3_32b_on_h100_has_its_sixty_rows(rows: list[SiliconRow]) -> None:
    study = SILICON_STUDIES[0]
    own = [row for row in rows if study.holds(row)]
    assert len(own) == 60
    assert {row.tensor_parallel_size for row in own} == {2, 4}
    assert {row.concurrency for row in own} == {8, 16, 32, 64, 128}


def test_qwen3_32b_on_h100_is_predicted_from_kernels(rows: list[SiliconRow]) -> None:
    """A fifth of the rows; all 60 are `headway validate silicon`: TPOT 3.5 %, TTFT 8 %."""
    study = SILICON_STUDIES[0]
    few = [row for row in rows if study.holds(row) and row.num_output_tokens == 128][::2]
    found = [predict_row(study, row, shipped) for row in few]
    tpot, ttft = tpot_summary("", found), ttft_summary("", found)
    assert tpot is not None
    assert ttft is not None
    assert tpot.mape <= 0.035
    assert ttft.mape <= 0.09
    order = tpot_order(found)
    assert order is not None
    assert order.pairs_in_order >= 0.95 * order.num_pairs


def test_recorded_runs_are_predicted_from_layers(shared_dir: Path) -> None:
    """The issue's targets for the 8B run, request by request means; the 32B run's link is known
    by its rate and latency only, which costs it a quarter of a percent of TPOT."""
    runs = find_bench_runs(shared_dir / "data" / "truth" / "llmservingsim_bench")
    assert [run.folder.name for run in runs] == ["Llama-3.1-8B", "Qwen3-32B"]
    limits = ({"TTFT": 0.03, "TPOT": 0.015, "E2E": 0.02}, {"TTFT": 0.03, "TPOT": 0.02, "E2E": 0.02})
    for run, limit in zip(runs, limits, strict=True):
        comparison = predict_bench_run(run)
        for metric, most in limit.items():
            assert len(comparison.measured[metric]) == 300
            assert abs(comparison.mean_error(metric)) <= most


def test_measured_means_are_those_that_the_source_prints(shared_dir: Path) -> None:
    """summary.txt: TTFT mean 7097.2 ms, TPOT mean 32.5 ms, latency mean 28200.7 ms."""
    run, _ = find_bench_runs(shared_dir / "data" / "truth" / "llmservingsim_bench")
    measured = predict_bench_run(run).measured
    assert np.nanmean(measured["TTFT"]) == pytest.approx(7.0972, abs=1e-4)
    assert np.nanmean(measured["TPOT"]) == pytest.approx(0.0325, abs=1e-4)
    assert np.nanmean(measured["E2E"]) == pytest.approx(28.2007, abs=1e-4)


def comparison(
    error: float, *, saturated: bool = False, groups: tuple[str, ...] = ()
) -> Comparison:
    return Comparison("row", groups, 2.0, 2.0 * (1 + error), 0.1, 0.1 * (1 + error), saturated)


def test_summaries_are_mean_errors_and_leave_saturated_ttft_out() -> None:
    found = [comparison(0.1), comparison(-0.2), comparison(0.6, saturated=True)]
    tpot, ttft = tpot_summary("all", found), ttft_summary("all", found)
    assert tpot is not None
    assert ttft is not None
    assert (tpot.num_rows, ttft.num_rows) == (3, 2)
    assert tpot.mape == pytest.approx(0.3)
    assert ttft.mape == pytest.approx(0.15)
    assert ttft.bias == pytest.approx(-0.05)
    assert ttft_summary("none", [found[2]]) is None
    groups = by_group([comparison(0, groups=("a", "b")), comparison(0, groups=("a",))])
    assert {name: len(own) for name, own in groups.items()} == {"a": 2, "b": 1}


def timed(measured: float, predicted: float, lengths: str = "8 prompt tokens") -> Comparison:
    return Comparison("row", ("tp 1", lengths), measured, 1.0, measured, predicted)


def test_errors_that_keep_the_order_keep_the_rank_correlation() -> None:
    """Twice as long, plus one: every error is large, and every choice between two is right."""
    order = tpot_order([timed(t, 2 * t + 1) for t in (0.1, 0.4, 0.2, 0.3)])
    assert order is not None
    assert (order.spearman, order.num_pairs, order.pairs_in_order) == (pytest.approx(1), 6, 6)


def test_a_swapped_pair_lowers_it_and_other_lengths_make_no_pair() -> None:
    """Ranks 1, 2, 3 predicted as 1, 3, 2: Spearman's 1 - 6 * 2 / (3 * 8) = 1/2."""
    rows = [timed(1, 1), timed(2, 3, "64 prompt tokens"), timed(3, 2)]
    order = tpot_order(rows)
    assert order is not None
    assert order.spearman == pytest.approx(0.5)
    assert (order.num_pairs, order.pairs_in_order) == (1, 1)
    swapped = tpot_order([timed(1, 1), timed(2, 3), timed(3, 2), timed(3, 9)])
    assert swapped is not None
    assert (swapped.num_pairs, swapped.pairs_in_order) == (5, 4)  # 3 and 3 are no choice
    assert tpot_order(rows[:2]) is None


def test_harnesses_name_every_study() -> None:
    assert {study.harness for study in SILICON_STUDIES} <= set(HARNESSES)
    assert HARNESSES["gap-analysis"].max_num_batched_tokens(4096, 32) == 4128


GOOD = {
    "id": "r1",
    "backend": "vllm",
    "backend_version": "0.12.0",
    "model_path": "Qwen/Qwen3-32B",
    "system": "h100_sxm",
    "mode": "agg",
    "gemm_quant_mode": "",
    "isl": "1024",
    "osl": "128",
    "batch_size": "8",
    "tp_size": "2",
    "silicon_ttft_ms": "154.2",
    "silicon_tpot_ms": "18.0",
}


def write(folder: Path, row: dict[str, str]) -> Path:
    file = folder / "rows.csv"
    file.write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n")
    return file


def test_a_row_is_read_in_seconds(tmp_path: Path) -> None:
    (row,) = read_silicon_rows(write(tmp_path, GOOD))
    assert (row.ttft_s, row.tpot_s) == pytest.approx((0.1542, 0.018))
    assert (row.num_prompt_tokens, row.concurrency, row.tensor_parallel_size) == (1024, 8, 2)
    assert SILICON_STUDIES[0].holds(row)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"silicon_ttft_ms": "fast"}, "line 2: silicon_ttft_ms is 'fast'; it must be milliseconds"),
        ({"silicon_tpot_ms": "-1"}, "silicon_tpot_ms is -0?.*; a measured time is above 0"),
        ({"isl": "many"}, "isl is 'many'; it must be a whole number"),
    ],
)
def test_bad_rows_name_the_line(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        read_silicon_rows(write(tmp_path, GOOD | changes))


def test_a_missing_column_or_file_is_named(tmp_path: Path) -> None:
    row = {key: value for key, value in GOOD.items() if key != "osl"}
    with pytest.raises(StudyError, match="column osl is missing"):
        read_silicon_rows(write(tmp_path, row))
    with pytest.raises(StudyError, match="can't be read as measured rows"):
        read_silicon_rows(tmp_path / "none.csv")
