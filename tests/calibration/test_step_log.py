"""A profile from logged steps: an engine whose times are known gives them back."""

from dataclasses import replace

import numpy as np
import pytest

from calibration import CalibrationError, ProfileCost, StepShape, parse_profile
from calibration.profile_format import ProfileProvenance
from calibration.step_log import TimedStep, fit_profile, lost_share
from calibration.step_log.terms import choose_knots, chunk_pairs
from sim.rng import Streams

PROVENANCE = ProfileProvenance(
    "cpu", "6.1", "2.13", "an engine", "tiny", "float32", "float32", 1, "2026-01-01"
)


def true_time_s(shape: StepShape) -> float:
    """Bound by memory up to 16 tokens, by arithmetic above, and straight in all else."""
    pairs = [chunk_pairs(*chunk) for chunk in shape.chunks]
    return (
        2e-3
        + 60e-6 * max(shape.num_tokens - 16, 0)
        + 20e-6 * shape.num_logits
        + 50e-6 * len(pairs)
        + 2e-8 * sum(earlier for earlier, _ in pairs)
        + 3e-8 * sum(own for _, own in pairs)
        + 1e-7 * shape.decode_context_tokens
    )


def random_shapes(count: int, name: str) -> list[StepShape]:
    rng = Streams(3).rng(name)
    shapes = []
    for _ in range(count):
        decodes = int(rng.integers(0, 33))
        fewest = 0 if decodes else 1
        chunks = tuple(
            (int(rng.integers(2, 200)), int(rng.integers(0, 400)))
            for _ in range(int(rng.integers(fewest, 3)))
        )
        shape = StepShape(
            decodes + sum(new for new, _ in chunks),
            decodes + int(rng.integers(0, len(chunks) + 1)),
            decodes,
            decodes * int(rng.integers(1, 500)),
            chunks,
        )
        shapes.append(shape)
    return shapes


def logged(count: int = 1500) -> list[TimedStep]:
    return [TimedStep(shape, true_time_s(shape)) for shape in random_shapes(count, "fit")]


def without_decodes() -> list[TimedStep]:
    return [step for step in logged(6000) if not step.shape.num_decodes]


def worst_error(steps: list[TimedStep]) -> float:
    cost = ProfileCost(fit_profile(steps, PROVENANCE))
    fresh = random_shapes(300, "held out")
    return max(abs(cost.step_time_s(shape) / true_time_s(shape) - 1) for shape in fresh)


def test_known_times_come_back_for_steps_that_were_not_logged() -> None:
    assert worst_error(logged()) < 0.01


def test_a_few_interrupted_steps_do_not_move_the_fit() -> None:
    """One step in twenty took ten times as long: somebody else had the core."""
    steps = [
        step._replace(time_s=10 * step.time_s) if i % 20 == 0 else step
        for i, step in enumerate(logged())
    ]
    assert worst_error(steps) < 0.03
    lost = lost_share(steps, fit_profile(steps, PROVENANCE))
    assert lost == pytest.approx(0.45, rel=0.1)  # nine times their time, of one in twenty


def test_scattered_steps_give_their_mean_back() -> None:
    """A service waits for slow steps, too: steps that scatter by 20 % count as their mean.

    A fit of the least errors relative to the measured times would be 2 x 0.2^2 = 8 % too low.
    """
    scatter = 0.2
    factors = np.exp(scatter * Streams(4).rng("scatter").standard_normal(6000) - scatter**2 / 2)
    steps = [
        step._replace(time_s=step.time_s * factor)
        for step, factor in zip(logged(6000), factors.tolist(), strict=True)
    ]
    cost = ProfileCost(fit_profile(steps, PROVENANCE))
    fresh = random_shapes(300, "held out")
    errors = [cost.step_time_s(shape) / true_time_s(shape) - 1 for shape in fresh]
    assert abs(float(np.mean(errors))) < 0.01


def test_the_profile_is_a_file_like_any_other_and_knows_what_was_seen() -> None:
    steps = logged()
    profile = fit_profile(steps, PROVENANCE)
    read = parse_profile(profile.to_json(), "p.json")
    assert replace(read, path="", sha256="") == profile
    cost = ProfileCost(profile)
    assert all(cost.out_of_range(step.shape) is None for step in steps)
    longest = max(new for step in steps for new, _ in step.shape.chunks)
    beyond = StepShape(longest + 1, 1, 0, 0, ((longest + 1, 0),))
    assert "new tokens of a chunk" in (cost.out_of_range(beyond) or "")


def test_every_knot_has_steps_to_say_where_it_lies() -> None:
    counts = [1] * 50 + [2] * 50 + [3] * 2 + [500] * 50
    knots = choose_knots(counts)
    assert knots[0] == 1 and knots[-1] == 500
    assert 2 in knots and 3 not in knots  # two steps of three tokens are no line


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        (logged(20), "20 steps were logged; a profile needs at least 100"),
        ([step for step in logged() if not step.shape.chunks], "no logged step computes a chunk"),
        (without_decodes(), "no logged step decodes"),
        ([step._replace(time_s=0.0) for step in logged()], "took 0.0 s; a time is above 0"),
    ],
)
def test_a_log_that_says_too_little_is_refused(steps: list[TimedStep], says: str) -> None:
    with pytest.raises(CalibrationError, match=says):
        fit_profile(steps, PROVENANCE)
