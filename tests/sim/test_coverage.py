"""Steps beyond a profile's tables: counted exactly, reported in one sentence."""

import re

import numpy as np

from calibration import ProfileCost, decode_shape, load_gpu, load_model, parse_profile
from sim.config.cost_options import skew_warnings
from sim.config.engine_options import resolve_engine
from sim.config.resolved import ResolvedStudy
from sim.config.schema import EngineSection
from sim.simulation import simulate
from tests.calibration.cost_models import profile_document, skewed_document
from traces import Trace


def run(num_prompt_tokens: int, num_output_tokens: int, *, leap: bool) -> tuple[str, ...]:
    model, gpu = load_model("llama-3.1-8b"), load_gpu("h100")
    engine = resolve_engine(EngineSection(max_num_batched_tokens=8192, leap=leap), model, gpu)
    study = ResolvedStudy(
        name="coverage",
        seed=0,
        trace=Trace.from_columns(np.zeros(2), [num_prompt_tokens] * 2, [num_output_tokens] * 2),
        model=model,
        gpu=gpu,
        cost_model=ProfileCost(parse_profile(profile_document(), "p")),
        engine=engine,
    )
    return simulate(study).info.warnings


def test_a_run_within_the_tables_says_nothing() -> None:
    assert run(100, 50, leap=True) == ()


def test_decode_steps_beyond_the_tables_are_counted_leaping_or_not() -> None:
    """Two equal requests decode together: mean context prompt + k at step k; the table ends at
    32,768, so of 101 steps after the prompt's last chunk those with k > 68 are beyond."""
    warnings = [run(32_700, 102, leap=leap) for leap in (True, False)]
    assert warnings[0] == warnings[1]
    (sentence,) = warnings[0]
    counts = re.search(r"mean decode context in (\d+) \(mean decode context 327\d\d", sentence)
    assert counts is not None
    assert "beyond the calibrated range and were extrapolated" in sentence
    # The first of the two begins some steps earlier, beside the chunks of the second.
    assert 101 - 68 <= int(counts[1]) <= 101 - 68 + 6


def test_chunks_beyond_the_tables_are_counted() -> None:
    """Chunks of 8192 tokens after 16,384 computed ones: the last table column."""
    (sentence,) = run(40_000, 2, leap=False)
    assert "computed tokens of a chunk" in sentence
    cost = ProfileCost(parse_profile(profile_document(), "p"))
    assert cost.out_of_range(decode_shape(2, 2 * 40_000)) is not None


def test_requests_that_outgrow_the_measured_skew_are_a_warning() -> None:
    """Of 256 decodes one of 40,000 tokens hardly moves the mean, which is what rows know."""
    profile = parse_profile(skewed_document(), "p.json")
    trace = Trace.from_columns([0.0, 1.0], [30_000, 100], [10_000, 10])
    (sentence,) = skew_warnings(ProfileCost(profile), trace, 131_072)
    assert "beyond 32768 tokens, the longest context of the profile: 1;" in sentence
    assert skew_warnings(ProfileCost(profile), trace, 32_768) == ()
    plain = ProfileCost(parse_profile(profile_document(), "p.json"))
    assert skew_warnings(plain, trace, 131_072) == ()
