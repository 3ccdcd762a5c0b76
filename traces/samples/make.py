"""Makes the shipped sample: `python -m traces.samples.make [PATH]` writes the same bytes anew."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from traces.generators.arrivals import GammaArrivals
from traces.generators.generate import generate
from traces.generators.lengths import Lognormal, LognormalLengths
from traces.generators.prefixes import SystemPrompts
from traces.trace import Trace
from traces.writer import save

SEED = 20240901
NUM_REQUESTS = 2_500
_DECIMALS = 6


def make() -> Trace:
    """The sample as written in README.md, arrivals rounded to microseconds."""
    trace = generate(
        num_requests=NUM_REQUESTS,
        arrivals=GammaArrivals(rate_per_s=6.5, cv=1.5),
        lengths=LognormalLengths(
            prompt=Lognormal(median=600, sigma=1.1, lowest=8, highest=12_000),
            output=Lognormal(median=190, sigma=0.8, lowest=1, highest=1_500),
        ),
        system_prompts=SystemPrompts(share=0.4, num_tokens=(900, 420, 1500, 250, 640, 2100)),
        priority_weights={0: 0.8, -1: 0.05, 1: 0.15},
        rng=np.random.Generator(np.random.PCG64(SEED)),
    )
    # Rounded, so that the bytes don't hang on the last bit of a platform's exp and log.
    return trace.with_arrivals(trace.arrival_s.round(_DECIMALS), "round")


def main(path: Path) -> None:
    """Write the sample to `path`, over what is there."""
    save(make(), path, overwrite=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "chat.jsonl")
