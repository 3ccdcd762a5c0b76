"""Named streams: stable, independent, and free of Python's own hashing."""

import subprocess
import sys

import numpy as np
import pytest

from sim.rng import Streams

DRAW = "from sim.rng import Streams; print(Streams(7).rng('arrivals').integers(2**62, size=3))"


def test_a_stream_depends_on_seed_and_name_alone() -> None:
    first, second = Streams(7), Streams(7)
    second.rng("router").random(100)
    assert np.array_equal(first.rng("arrivals").random(50), second.rng("arrivals").random(50))


def test_names_and_seeds_give_different_streams() -> None:
    names = ["arrivals", "router", "Arrivals", "arrivals ", "", "trace"]
    firsts = {float(Streams(seed).rng(n).random()) for seed in range(20) for n in names}
    assert len(firsts) == 20 * len(names)


def test_streams_are_uncorrelated() -> None:
    """The correlation of 100,000 independent pairs has a standard deviation of 0.0032."""
    streams = Streams(3)
    one, other = streams.rng("a").random(100_000), streams.rng("b").random(100_000)
    assert abs(float(np.corrcoef(one, other)[0, 1])) < 5 * 0.0032


def test_a_stream_is_the_same_under_another_hash_seed() -> None:
    draws = {
        subprocess.run(
            [sys.executable, "-c", DRAW],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(draws) == 1


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="seed must be 0 or more, got -1"):
        Streams(-1)
