"""The decoder against a plain one without pages, and calibrations of a tiny model."""

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import traces
from calibration import (
    CalibrationError,
    InterruptedCalibrationError,
    ModelSpec,
    ProfileCost,
    StepShape,
    parse_profile,
)
from calibration.bench.points import Point
from calibration.bench.samples import SampleStore
from calibration.bench.skewed_contexts import skewed_contexts
from calibration.bench.step_batch import Piece, StepBatch, pack
from sim.cli.app import run_app
from sim.rng import Streams

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[bench]'")

from torch.nn.functional import rms_norm, silu  # noqa: E402

from calibration.bench.all_reduce import time_all_reduces  # noqa: E402
from calibration.bench.attention import PagedKVCache, make_cache  # noqa: E402
from calibration.bench.bench_run import BenchOptions, run_calibration  # noqa: E402
from calibration.bench.bench_setup import open_bench  # noqa: E402
from calibration.bench.decoder import Decoder  # noqa: E402
from calibration.bench.device import open_device, torch_dtype  # noqa: E402
from calibration.bench.parts import ATTENTION, LOGITS, time_parts  # noqa: E402
from calibration.bench.sections import OPERATIONS, Sections  # noqa: E402
from calibration.bench.timing import make_timer  # noqa: E402

TINY = ModelSpec(
    name="tiny",
    num_hidden_layers=2,
    hidden_size=32,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    intermediate_size=48,
    vocab_size=97,
    max_position_embeddings=256,
    dtype="float32",
)
OPTIONS = BenchOptions(
    TINY,
    budget_s=60.0,
    max_num_batched_tokens=16,
    max_num_seqs=4,
    max_model_len=64,
    num_held_out=6,
)


def plain_next_token(decoder: Decoder, tokens: list[int]) -> int:
    """The same model, written without cache, pages or batches: full attention in float64."""
    model = decoder.model
    x = decoder.embedding[tokens].double()
    count = len(tokens)
    half = model.head_dim // 2
    rates = 10000.0 ** (-torch.arange(half).double() / half)
    angles = torch.arange(count).double()[:, None] * rates
    turn = torch.polar(torch.ones_like(angles), angles)

    def rotated(heads: torch.Tensor) -> torch.Tensor:
        pairs = torch.complex(heads[..., :half].contiguous(), heads[..., half:].contiguous())
        turned = pairs * turn[:, None]
        return torch.cat([turned.real, turned.imag], dim=-1)

    group = model.num_attention_heads // model.num_key_value_heads
    ahead = torch.ones(count, count).triu(1).bool()
    for layer in decoder.layers:
        normed = rms_norm(x, (model.hidden_size,), layer.norm.double(), 1e-5)
        q, k, v = (normed @ layer.qkv.double().T).split(
            [model.query_size, model.kv_size, model.kv_size], dim=-1
        )
        q, k, v = (t.view(count, -1, model.head_dim) for t in (q, k, v))
        q, k = rotated(q), rotated(k)
        k, v = (t.repeat_interleave(group, dim=1) for t in (k, v))
        scores = torch.einsum("ihd,jhd->hij", q, k) / model.head_dim**0.5
        weights = scores.masked_fill(ahead, float("-inf")).softmax(-1)
        attended = torch.einsum("hij,jhd->ihd", weights, v).flatten(1)
        x = x + attended @ layer.out.double().T
        normed = rms_norm(x, (model.hidden_size,), layer.mlp_norm.double(), 1e-5)
        gate, up = (normed @ layer.gate_up.double().T).chunk(2, dim=-1)
        x = x + (silu(gate) * up) @ layer.down.double().T
    last = rms_norm(x[-1], (model.hidden_size,), decoder.norm.double(), 1e-5)
    return int((last @ decoder.head.double().T).argmax())


def test_pages_chunks_and_batches_give_the_tokens_of_the_plain_model() -> None:
    decoder = Decoder(TINY, open_device("cpu"), block_size=4)
    cache = make_cache(TINY, 30, 4, decoder.device, decoder.dtype)
    rng = Streams(0).rng("tokens")
    first, second = (rng.integers(0, TINY.vocab_size, count) for count in (13, 6))
    blocks = {"a": np.array([21, 3, 17, 8]), "b": np.array([5, 12])}

    def step(*pieces: Piece) -> list[int]:
        return decoder.step(pack(pieces, 4), cache)

    # The first prompt in chunks of 5 and 8, the second beside the last chunk; then both decode.
    assert step(Piece(first[:5], 0, blocks["a"][:2], needs_logits=False)) == []
    tokens = step(Piece(second, 0, blocks["b"]), Piece(first[5:], 5, blocks["a"]))
    texts = {"b": [*second.tolist(), tokens[0]], "a": [*first.tolist(), tokens[1]]}
    assert tokens[0] == plain_next_token(decoder, texts["b"][:-1])
    assert tokens[1] == plain_next_token(decoder, texts["a"][:-1])
    for _ in range(2):
        pieces = [
            Piece(np.array(text[-1:]), len(text) - 1, blocks[name]) for name, text in texts.items()
        ]
        for text, token in zip(texts.values(), step(*pieces), strict=True):
            assert token == plain_next_token(decoder, text)
            text.append(token)


@pytest.mark.usefixtures("budget_in_cpu_time")
def test_a_calibration_fills_a_profile_that_reads_back(tmp_path: Path) -> None:
    file = tmp_path / "p.samples.jsonl"
    calibration = run_calibration(
        OPTIONS, rng=Streams(0).rng, samples_file=file, on_progress=stop_after(400)
    )
    profile = parse_profile(json.loads(json.dumps(calibration.profile.to_json())), "p.json")
    assert profile.provenance.model == "tiny"
    assert "scaled_dot_product_attention" in profile.provenance.kernel_backend
    shape = StepShape(9, 3, 2, 40, ((7, 0),))
    assert ProfileCost(profile).step_time_s(shape) > 0
    assert ProfileCost(profile).out_of_range(shape) is None
    assert set(profile.fit["operations_us"]) == set(OPERATIONS)
    assert profile.fit["held_out"]["all"]["num_points"] == 6
    before = len(file.read_text().splitlines())
    run_calibration(
        OPTIONS, rng=Streams(0).rng, samples_file=file, resume=True, on_progress=stop_after(3)
    )
    assert len(file.read_text().splitlines()) > before


def test_a_budget_too_short_says_how_long_it_takes(tmp_path: Path) -> None:
    short = replace(OPTIONS, budget_s=1e-3)
    with pytest.raises(CalibrationError, match=r"time was too short.*at least .* minutes"):
        run_calibration(short, rng=Streams(0).rng)
    with pytest.raises(InterruptedCalibrationError, match=r"interrupted.*start anew"):
        run_calibration(OPTIONS, rng=Streams(0).rng, on_progress=stop_after(3))
    file = tmp_path / "some.samples.jsonl"
    with pytest.raises(
        InterruptedCalibrationError, match=r"some\.samples\.jsonl: go on with --resume"
    ):
        run_calibration(OPTIONS, rng=Streams(0).rng, samples_file=file, on_progress=stop_after(3))


@pytest.mark.usefixtures("budget_in_cpu_time")
def test_a_group_of_two_has_half_the_work_and_all_reduces() -> None:
    """On the CPU: two processes with gloo; the rest is one share of the model."""
    options = replace(OPTIONS, tensor_parallel_size=2)
    profile = run_calibration(options, rng=Streams(0).rng, on_progress=stop_after(400)).profile
    measured = profile.provenance
    assert (measured.model, measured.tensor_parallel_size) == ("tiny", 2)
    times = profile.fit["all_reduce"]
    assert (times["backend"], times["num_ranks"]) == ("gloo", 2)
    assert all(time_us > 1 for time_us in times["time_us"])
    # Two a layer of one token's hidden state are part of the smallest step.
    row_bytes = TINY.hidden_size * TINY.dtype_bytes
    assert times["message_bytes"][0] == row_bytes
    assert profile.dense.time_us[0] > 2 * TINY.num_hidden_layers * times["time_us"][0]


def test_a_resumed_calibration_keeps_the_kernel_of_its_samples(tmp_path: Path) -> None:
    file = tmp_path / "p.samples.jsonl"
    assert SampleStore.recorded(file, "kernel_backend") == ""
    SampleStore({"kernel_backend": "some kernel"}, file).start()
    assert SampleStore.recorded(file, "kernel_backend") == "some kernel"
    file.write_text("not json")
    assert SampleStore.recorded(file, "kernel_backend") == ""


def test_tables_are_measured_to_their_corners() -> None:
    """A chunk of the most tokens after the longest context lies beyond the model's positions."""
    longest = TINY.max_position_embeddings
    bench = open_bench(replace(OPTIONS, max_model_len=longest), Streams(0).rng)
    corner = Point("prefill_attention", OPTIONS.max_num_batched_tokens, longest)
    assert corner in bench.plan.points()
    assert bench.sections.measure(corner).time_s > 0


def test_a_chunk_in_slices_is_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """As gathered blocks attend where the scores of a whole chunk don't fit."""
    decoder = Decoder(TINY, open_device("cpu"), block_size=4)
    tokens = Streams(0).rng("tokens").integers(0, TINY.vocab_size, 13)
    batch = pack([Piece(tokens, 0, np.array([3, 1, 2, 4]))], 4)
    cache = make_cache(TINY, 5, 4, decoder.device, decoder.dtype)
    monkeypatch.setattr("calibration.bench.attention._MOST_SCORES_BYTES", 4 * 4 * 13 * 5)
    assert decoder.step(batch, cache) == [plain_next_token(decoder, tokens.tolist())]


def test_a_position_that_the_model_does_not_have_is_an_error() -> None:
    """On CUDA it would be a fault that ends all work on the device."""
    decoder = Decoder(TINY, open_device("cpu"), block_size=4)
    beyond = pack([Piece(np.zeros(1, np.int64), 256, np.arange(65))], 4)
    with pytest.raises(CalibrationError, match="position 256 is beyond the 256"):
        decoder.prepare(beyond)


def test_a_batch_that_was_prepared_gives_the_tokens_of_a_step() -> None:
    decoder = Decoder(replace(TINY, tie_word_embeddings=True), open_device("cpu"), block_size=4)
    assert decoder.head is decoder.embedding
    tokens = Streams(0).rng("tokens").integers(0, TINY.vocab_size, 9)
    batch = pack([Piece(tokens, 0, np.array([3, 1, 2]))], 4)
    once, again = (make_cache(TINY, 5, 4, decoder.device, decoder.dtype) for _ in range(2))
    expected = [plain_next_token(decoder, tokens.tolist())]
    assert decoder.run(decoder.prepare(batch), once) == decoder.step(batch, again) == expected


@pytest.mark.parametrize(
    "other", [{"window": 64, "num_window_layers": 1}, {"has_attention_sinks": True}]
)
def test_a_model_with_other_attention_is_refused(other: dict[str, int]) -> None:
    with pytest.raises(CalibrationError, match="no experts, no windows and no sinks"):
        Decoder(replace(TINY, **other), open_device("cpu"))  # type: ignore[arg-type]


def test_an_all_reduce_that_can_not_be_is_an_error() -> None:
    many = replace(open_device("cpu"), torch_device=torch.device("cuda"))
    with pytest.raises(CalibrationError, match=r"group of 99 needs as many CUDA devices; torch"):
        time_all_reduces(many, 99, "float32", [64])


def test_what_can_not_be_measured_is_refused() -> None:
    with pytest.raises(CalibrationError, match=r"sees 0 CUDA devices|unknown device"):
        open_device("cuda:63")
    with pytest.raises(CalibrationError, match="needs a CUDA device"):
        make_timer(open_device("cpu"), "cuda-graph")
    with pytest.raises(CalibrationError, match="the decoder runs"):
        torch_dtype("fp8")
    with pytest.raises(CalibrationError, match=r"needs .* GiB for tiny"):
        make_cache(TINY, 10**12, 16, open_device("cpu"), torch.float32)


def test_the_parts_of_a_step_add_up_to_the_step() -> None:
    """Timed on the same step, they leave nothing out and count nothing twice.

    In CPU time, of which others on the machine take none.
    """
    decoder = Decoder(TINY, open_device("cpu"), block_size=4)
    cache = make_cache(TINY, 33, 4, decoder.device, decoder.dtype)
    tokens = np.zeros(1, dtype=np.int64)
    pieces = [Piece(tokens, 30, np.arange(8 * i, 8 * i + 8)) for i in range(4)]
    batch = pack(pieces, 4)
    shares = []
    for _ in range(5):  # the first one also sets things up
        with torch.inference_mode():
            begin_s = time.thread_time()
            parts = time_parts(decoder, batch, cache)
            elapsed_s = time.thread_time() - begin_s
        shares.append(sum(part.cpu_s for part in parts.values()) / elapsed_s)
        assert parts[ATTENTION].cpu_s > parts[LOGITS].cpu_s  # 4 gathers twice, one small product
    assert 0.9 < max(shares) <= 1.0


def test_skewed_contexts_keep_their_mean() -> None:
    for mean, count in ((100, 7), (64, 32), (1000, 2), (500, 1)):
        contexts = skewed_contexts(mean, count)
        assert np.mean(contexts) == pytest.approx(mean, rel=0.02)
        assert max(contexts) == pytest.approx(4 * min(contexts), rel=0.05) or count == 1
    assert str(Point("dense", 4)) == "dense 4"


@pytest.mark.usefixtures("budget_in_cpu_time")
def test_calibrate_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 32,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        "vocab_size": 97,
        "max_position_embeddings": 256,
        "torch_dtype": "float32",
    }
    Path("tiny").mkdir()
    Path("tiny/config.json").write_text(json.dumps(config))
    arguments = "calibrate --model tiny --max-num-batched-tokens 16 --max-num-seqs 4"
    code = run_app(
        [*arguments.split(), *["--max-model-len", "64", "--minutes", "0.05", "--plot", "held.png"]]
    )
    assert code == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    assert "held-out whole steps" in out and "profile: profile.json" in out
    assert Path("held.png").stat().st_size > 0
    assert json.loads(Path("profile.json").read_text())["provenance"]["notes"].startswith(
        "KV blocks of 16 tokens"
    )
    assert run_app(["calibrate", "--model", "tiny", "--kernel", "flash"]) == 2
    assert "on the CPU there is one" in capsys.readouterr().err
    assert run_app(["calibrate", "--model", "tiny", "--tp", "3"]) == 2
    assert "tensor_parallel_size 3 does not divide" in capsys.readouterr().err
    arguments = "validate executor --profile profile.json --model tiny --num-requests 6"
    limits = "--max-num-batched-tokens 16 --max-num-seqs 4 --max-model-len 64 --block-size 4"
    code = run_app([*arguments.split(), *limits.split(), *["--repeats", "2", "--clock", "cpu"]])
    out = capsys.readouterr().out
    assert code == 0
    assert out.count("MAPE") == 3 and "KV-starved" in out
    assert out.count("the clock followed the machine's pace") == 3
    traces.save(traces.Trace.from_columns([0.0, 0.01], [20, 9], [3, 4]), "two.csv")
    arguments += " --trace two.csv --num-gpu-blocks 9 --repeats 1 --out plots"
    assert run_app([*arguments.split(), *limits.split()]) == 0
    out = capsys.readouterr().out
    assert "2 requests, 9 KV blocks of 4, 1 run;" in out and out.count("MAPE") == 1
    assert len(list(Path("plots").glob("*.png"))) == 2
    assert run_app(["validate", "executor", "--profile", "profile.json"]) == 2
    assert "measured with model" in capsys.readouterr().err


class stop_after:
    """Lets a calibration take this many timings."""

    def __init__(self, count: int) -> None:
        self.left = count

    def __call__(self, _: object) -> bool:
        self.left -= 1
        return self.left > 0


@pytest.mark.parametrize(
    ("point", "rows"),
    [
        (Point("dense", 1), 1),
        (Point("logits", 1), 1),
        (Point("decode_attention", 1, 8), 1),
        (Point("op:norms", 1), 1),
        (Point("whole_step", 0), 1),
        (Point("dense", 8), 4),
        (Point("decode_attention", 2, 8), 4),
        (Point("prefill_attention", 8, 4), 4),
        (Point("whole_step", 1), 4),
    ],
)
def test_a_step_of_one_row_is_timed_after_another(point: Point, rows: int) -> None:
    """What runs before leaves the caches as a step of that kind does."""
    decoder = Decoder(TINY, open_device("cpu"), block_size=4)
    cache = make_cache(TINY, 40, 4, decoder.device, decoder.dtype)
    blocks = np.arange(3)
    held_out = [
        pack([Piece(np.zeros(1, np.int64), 5, blocks)], 4),
        pack([Piece(np.zeros(7, np.int64), 0, blocks)], 4),
    ]
    timer = make_timer(decoder.device, "eager")
    sections = Sections(decoder, cache, timer, Streams(0).rng("blocks"), held_out)
    seen: list[int] = []
    run = decoder.step

    def watched(batch: StepBatch, cache: PagedKVCache) -> list[int]:
        seen.append(len(batch.token_ids))
        return run(batch, cache)

    decoder.step = watched  # type: ignore[method-assign]
    assert sections.measure(point).time_s > 0
    assert seen[0] == rows
