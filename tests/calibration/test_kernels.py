"""Kernel tables: sums by hand, sizes between measured ones, and every way a table can be wrong."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration import (
    CalibrationError,
    ProfileCost,
    RooflineCost,
    StepShape,
    UnmeasuredError,
    decode_shape,
    load_gpu,
    load_model,
    shipped_profile,
)
from calibration.kernels import build_profile, find_kernel_data, load_kernel_tables
from calibration.kernels.all_reduce import link_all_reduce
from calibration.kernels.attention import Heads
from calibration.kernels.chunk_attention import chunk_times_us
from calibration.kernels.curves import Curve, settled
from calibration.kernels.gemm import read_gemm
from calibration.kernels.reading import read_kernel_table
from tests.calibration import kernel_files as made

LLAMA, H100 = load_model("llama-3.1-8b"), load_gpu("h100")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.write_system(tmp_path_factory.mktemp("kernels"))


def test_products_between_measured_sizes_are_exact_for_a_bilinear_time(data: Path) -> None:
    tables = load_kernel_tables(data, "h100_sxm")
    for n, k in ((1024, 512), (6144, 4096), (28672, 4096), (4096, 14336)):
        curve = tables.gemm_of("bfloat16").curve(n, k)
        expected = [made.gemm_us(m, n, k) for m in made.M]
        assert curve.time_us == pytest.approx(expected, rel=1e-9)


def test_a_product_beyond_the_grid_is_in_proportion(data: Path) -> None:
    curve = load_kernel_tables(data, "h100_sxm").gemm_of("bfloat16").curve(131072, 4096)
    assert curve.time_us == pytest.approx([2 * made.gemm_us(m, 65536, 4096) for m in made.M])


def test_a_step_is_the_sum_of_its_kernels(data: Path) -> None:
    """Decode of Llama-3.1-8B at a measured point, added up by hand."""
    profile = build_profile(load_kernel_tables(data, "h100-sxm-80gb"), LLAMA)
    tokens, context = 16, 1024
    products = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))
    gemm_us = sum(made.gemm_us(tokens, n, k) for n, k in products)
    bytes_per_us = 0.8 * 3350e9 / 1e6
    numbers = 2 * 4 * 4096 + 2 * (4096 + 1024) + 3 * 14336
    small_us = 4 * 2.5 + tokens * numbers * 2 / bytes_per_us
    layers_us = 32 * (gemm_us + small_us + made.decode_us(tokens, context))
    ends_us = 2 * 2.5 + tokens * 6 * 4096 * 2 / bytes_per_us
    head_us = made.gemm_us(tokens, 65536, 4096) * 128256 / 65536
    sampler_us = 10 * 2.5 + tokens * 128256 * 10 / bytes_per_us
    expected_s = (layers_us + ends_us + head_us + sampler_us) * 1e-6
    step_s = ProfileCost(profile).step_time_s(decode_shape(tokens, tokens * context))
    assert step_s == pytest.approx(expected_s, rel=1e-4)


def test_tensor_parallel_adds_two_all_reduces_a_layer_and_the_gathering_of_logits(
    data: Path, tmp_path: Path
) -> None:
    folder = made.write_system(tmp_path)
    rows = made.attention_rows(is_context=True) + made.attention_rows(is_context=False)
    halves = [row | {"num_heads": row["num_heads"] // 2, "num_key_value_heads": 4} for row in rows]
    attention = folder / "h100_sxm" / "attention" / "vllm" / "0.24.0"
    made.write_table(
        attention / "context_attention_perf.parquet", [r for r in halves if r["step"] == 0]
    )
    made.write_table(
        attention / "generation_attention_perf.parquet", [r for r in halves if r["step"] > 0]
    )
    tables = load_kernel_tables(folder, "h100_sxm")
    with_links = build_profile(tables, LLAMA, tensor_parallel_size=2)
    tables.__dict__["all_reduce"] = {2: Curve(np.array([1.0, 1e12]), np.array([1e-9, 2e-9]))}
    without = build_profile(tables, LLAMA, tensor_parallel_size=2)
    tokens = 256
    i = with_links.dense.axis.index(tokens)
    added_us = with_links.dense.time_us[i] - without.dense.time_us[i]
    message_us = np.interp(
        tokens * 4096 * 2, made.MESSAGES, [made.all_reduce_us(size) for size in made.MESSAGES]
    )
    assert added_us == pytest.approx(32 * 2 * message_us, rel=2e-3)
    gathered_us = with_links.logits.time_us[0] - without.logits.time_us[0]
    logits_us = np.interp(
        128256 * 2, made.MESSAGES, [made.all_reduce_us(size) for size in made.MESSAGES]
    )
    assert gathered_us == pytest.approx(logits_us / 2, rel=2e-2)


def test_small_messages_take_the_fused_kernel_where_it_is_quicker(tmp_path: Path) -> None:
    made.write_system(tmp_path, "b200_sxm")
    own = load_kernel_tables(tmp_path, "b200_sxm").all_reduce[2]
    file = "comm/trtllm/{}/custom_allreduce_perf.parquet"
    rows = [row for row in made.all_reduce_rows() if row["backend"] == "vllm_graph"]
    half = [row | {"latency": row["latency"] / 2} for row in rows]
    made.write_table(tmp_path / "b200_sxm" / file.format("1.3.0rc9"), rows)
    made.write_table(tmp_path / "b200_sxm" / file.format("1.3.0rc20"), half)
    fused = load_kernel_tables(tmp_path, "b200_sxm").all_reduce[2]
    is_small = own.axis <= 64 * 2**20
    assert is_small.any() and not is_small.all()
    assert fused.time_us[is_small] == pytest.approx(own.time_us[is_small] / 2)
    assert fused.time_us[~is_small] == pytest.approx(own.time_us[~is_small])
    made.write_table(
        tmp_path / "b200_sxm" / file.format("1.3.0rc20"),
        [row | {"latency": row["latency"] * 2} for row in rows],
    )
    slower = load_kernel_tables(tmp_path, "b200_sxm").all_reduce[2]
    assert slower.time_us == pytest.approx(own.time_us)


def test_hopper_keeps_the_all_reduce_of_the_engine(tmp_path: Path) -> None:
    made.write_system(tmp_path)
    file = "h100_sxm/comm/trtllm/1.3.0rc20/custom_allreduce_perf.parquet"
    made.write_table(tmp_path / file, made.all_reduce_rows())
    assert "fused_all_reduce" not in load_kernel_tables(tmp_path, "h100_sxm").files


MIB = 2**20


@pytest.mark.parametrize(
    ("num_gpus", "size", "expected_us"),
    [
        (4, 8e6, 6 * (5 + 8e6 / 4 / 100e3)),  # a ring: 6 steps of 5 us and a quarter of the message
        (4, 8e3, 6 * (5 + 8e3 / 4 / 100e3)),
        (2, 80e6, 2 * (5 + 80e6 / 2 / 100e3)),  # a ring: 2 steps of a half
        (2, 8 * MIB, 2 * (5 + 8 * MIB / 2 / 100e3)),
        (2, 8 * MIB - 16, 5 + 8 * MIB / 100e3),  # one stage: the other's message, read at once
        (2, 1e6, 5 + 1e6 / 100e3),
        (1, 1e6, 0.0),
    ],
)
def test_an_all_reduce_over_a_link_of_100_gb_per_s_and_5_us(
    num_gpus: int, size: float, expected_us: float
) -> None:
    """The alpha-beta model: 100 GB/s are 100e3 bytes a microsecond."""
    time_us = link_all_reduce(num_gpus, 100e9, 5e-6).at(np.array([size]))[0]
    assert time_us == pytest.approx(expected_us, rel=1e-5)


def test_heads_between_measured_ones_are_interpolated(data: Path) -> None:
    tables = load_kernel_tables(data, "h100_sxm")
    grid = tables.attention.decode(Heads(28, 8, 128))
    expected = [[made.decode_us(b, c) * 28 / 32 for c in made.CONTEXTS] for b in made.BATCHES]
    assert grid.time_us == pytest.approx(np.array(expected))
    with pytest.raises(UnmeasuredError, match="64 query heads on 8 key-value heads of 128"):
        tables.attention.prompt(Heads(64, 8, 128))


def test_a_chunk_does_the_arithmetic_that_the_whole_prompt_has_left(data: Path) -> None:
    """With time = launch + rate * length^2, a chunk costs launch + rate * (2 n c + n^2)."""
    tables = load_kernel_tables(data, "h100_sxm")
    prompt = tables.attention.prompt(Heads(32, 8, 128))
    level = Curve(np.array([2.0, 4096.0]), np.array([1.0, 1.0]))
    new, computed = np.array([512.0, 1024.0]), np.array([0.0, 2048.0, 60_000.0])
    times = chunk_times_us(prompt, level, new, computed)
    launch = made.prompt_us(1)
    expected = launch + 1e-6 * (2 * new[:, None] * computed + new[:, None] ** 2)
    assert times == pytest.approx(expected, rel=2e-3)


def test_a_chunk_is_never_cheaper_than_reading_its_context_once() -> None:
    prompt = Curve(np.array([1.0, 4096.0]), np.array([10.0, 12.0]))
    read = Curve(np.array([2.0, 100_000.0]), np.array([10.0, 500.0]))
    times = chunk_times_us(prompt, read, np.array([2.0]), np.array([99_998.0]))
    assert times[0, 0] == pytest.approx(500.0)


def test_hiccups_are_taken_down_to_what_more_work_takes() -> None:
    times = np.array([[27.0, 13.0, 34.0, 13.1, 14.0, np.nan, 20.0]])
    cleaned = settled(times)[0]
    assert cleaned[0] == cleaned[2 - 2] <= 1.02 * 13.0
    assert cleaned[2] == pytest.approx(1.02 * 13.1)
    assert cleaned[[1, 3, 4, 6]].tolist() == [13.0, 13.1, 14.0, 20.0]
    assert np.isnan(cleaned[5])


def test_leaving_out_a_point_of_a_parabola_gives_its_known_error() -> None:
    curve = Curve(np.array([1.0, 2.0, 3.0]), np.array([1.0, 4.0, 9.0]))
    assert curve.leave_out_errors().tolist() == [5 / 4 - 1]


def test_the_profile_of_a_table_is_refused_for_formats_that_were_not_measured(data: Path) -> None:
    tables = load_kernel_tables(data, "h100_sxm")
    with pytest.raises(CalibrationError, match="no products with int4 weights"):
        build_profile(tables, load_model("llama-3.1-8b", "awq"))
    with pytest.raises(UnmeasuredError, match="fp8 cache"):
        build_profile(tables, LLAMA, kv_cache_dtype="fp8")
    assert build_profile(tables, load_model("llama-3.1-8b", "fp8")).provenance.weight_dtype == "fp8"


def test_the_newest_version_of_each_table_is_taken(tmp_path: Path) -> None:
    made.write_system(tmp_path, version="0.9.0")
    made.write_system(tmp_path, version="0.24.0")
    made.write_system(tmp_path, version="0.1.dev19262")
    assert set(load_kernel_tables(tmp_path, "h100_sxm").versions.values()) == {"0.24.0"}


def test_a_table_of_another_release_is_named_where_it_is_used(tmp_path: Path) -> None:
    """The all-reduce was last measured with an older release: one GPU has none."""
    made.write_system(tmp_path, version="0.9.0")
    made.write_system(tmp_path, version="0.24.0")
    (newer,) = tmp_path.rglob("0.24.0/custom_allreduce_perf.parquet")
    newer.unlink()
    tables = load_kernel_tables(tmp_path, "h100_sxm")
    assert tables.releases(1, with_experts=False) == "vLLM 0.24.0 kernels"
    assert tables.releases(2, with_experts=False) == "vLLM 0.24.0 kernels, all reduce of 0.9.0"
    label = ProfileCost(build_profile(tables, LLAMA)).provenance.label
    assert "with vLLM 0.24.0 kernels, llama-3.1-8b" in label


def test_shipped_profiles_name_every_release_that_is_in_them() -> None:
    """What a run prints of its times; the notes have the release of every table."""
    model = load_model("llama-3.1-8b")
    for gpu, tp, said in (
        ("l40s", 1, "vLLM 0.24.0 kernels, llama"),
        ("l40s", 2, "vLLM 0.24.0 kernels, all reduce of 0.22.0, llama"),
        ("b200", 2, "vLLM 0.24.0 kernels, fused all reduce of (TensorRT-LLM's) 1.3.0rc20, llama"),
    ):
        cost = shipped_profile(model, load_gpu(gpu), tp)
        assert cost is not None
        assert said in cost.provenance.label


def edit(rows: list[dict[str, Any]], **changes: Any) -> list[dict[str, Any]]:
    return [rows[0] | changes, *rows[1:]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (edit(made.gemm_rows(), latency=-1.0), "a latency is -1 ms; a measured time is above 0"),
        (edit(made.gemm_rows(), latency=0.0), "a measured time is above 0"),
        (edit(made.gemm_rows(), latency=float("nan")), "latency of row 0 is nan"),
        (edit(made.gemm_rows(), latency=1e-6), "are the times seconds?"),
        (edit(made.gemm_rows(), latency=1e6), "are the times microseconds?"),
        (
            [row | {"latency": row["latency"] * 1e3} for row in made.gemm_rows()],
            "are the times microseconds?",
        ),
        (edit(made.gemm_rows(), latency="fast"), None),
        ([*made.gemm_rows(), made.gemm_rows()[0] | {"latency": 1.0}], "more than once"),
        ([{k: v for k, v in r.items() if k != "k"} for r in made.gemm_rows()], "column k is"),
    ],
)
def test_bad_tables_are_refused(
    tmp_path: Path, rows: list[dict[str, Any]], message: str | None
) -> None:
    file = tmp_path / "gemm_perf.parquet"
    if message is None:
        rows = [row | {"latency": str(row["latency"])} for row in rows]
        message = "latency is not a number"
    made.write_table(file, rows)
    with pytest.raises(CalibrationError, match=message) as error:
        read_gemm(file)
    assert str(file) in str(error.value)


def test_repeats_that_agree_become_their_mean(tmp_path: Path) -> None:
    first = made.gemm_rows()[0]
    rows = [*made.gemm_rows(), first | {"latency": first["latency"] * 1.1}]
    columns = read_kernel_table(
        made.write_table(tmp_path / "g.parquet", rows), ("gemm_dtype", "m", "n", "k")
    )
    assert len(columns["latency"]) == len(rows) - 1
    assert columns["latency"][0] == pytest.approx(first["latency"] * 1.05)


def test_missing_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="has no folder h100_sxm; it is empty or no folder"):
        load_kernel_tables(tmp_path / "none", "h100_sxm")
    with pytest.raises(
        CalibrationError, match="unknown system 'h1000_sxm'; did you mean 'h100_sxm"
    ):
        load_kernel_tables(tmp_path, "h1000_sxm")
    (tmp_path / "h100_sxm").mkdir()
    with pytest.raises(CalibrationError, match=r"has no gemm_perf\.parquet of"):
        load_kernel_tables(tmp_path, "h100_sxm")
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1")
    with pytest.raises(CalibrationError, match="can't be read as a Parquet table"):
        read_gemm(broken)


def test_without_the_tables_installed_the_message_says_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("calibration.kernels.system.find_spec", lambda _: None)
    with pytest.raises(CalibrationError, match=r"pip install 'headway\[aic\]'"):
        find_kernel_data()


# Against measured H100 kernels.


@pytest.fixture(scope="module")
def h100_tables(shared_dir: Path) -> Any:
    return load_kernel_tables(shared_dir / "data" / "kernels", "h100_sxm")


def test_no_measured_step_beats_the_data_sheet(h100_tables: Any) -> None:
    """A profile of real kernels is slower than the roofline, and not by an order of magnitude."""
    for name, tp in (("llama-3.1-8b", 1), ("qwen3-32b", 2), ("qwen3-32b-fp8", 1)):
        model = load_model(name)
        cost = ProfileCost(build_profile(h100_tables, model, tensor_parallel_size=tp))
        bound = RooflineCost(model, H100, tp)
        for batch, context in ((1, 1024), (32, 4096), (128, 1024)):
            shape = decode_shape(batch, batch * context)
            assert 1.0 < cost.step_time_s(shape) / bound.step_time_s(shape) < 2.5
        for tokens in (1024, 8192):
            shape = StepShape(tokens, 1, 0, 0, ((tokens, 0),))
            assert 1.0 < cost.step_time_s(shape) / bound.step_time_s(shape) < 2.5


def test_measured_products_are_interpolated_to_a_few_percent(h100_tables: Any) -> None:
    errors = np.abs(h100_tables.gemm_of("bfloat16").shape_errors())
    assert np.median(errors) < 0.05
    assert np.percentile(errors, 90) < 0.2
