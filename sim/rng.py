"""The one place where random generators are made.

A study has one seed. Everything random in it draws from a stream of its own, named by what it is
for, so that a new use of randomness never shifts the numbers of an old one.
"""

import hashlib

import numpy as np


class Streams:
    """Named independent random streams of one seed.

    The stream of a name depends on the seed and the name alone: not on the order in which streams
    are asked for, on the process, or on PYTHONHASHSEED. `rng(name)` gives the stream from its start
    each time, so ask once and hand the generator on.
    """

    def __init__(self, seed: int) -> None:
        if seed < 0:
            raise ValueError(f"seed must be 0 or more, got {seed}")
        self.seed = seed

    def rng(self, name: str) -> np.random.Generator:
        """Return the generator of the stream `name`, at its start."""
        sequence = np.random.SeedSequence(self.seed, spawn_key=_stable_words(name))
        return np.random.Generator(np.random.PCG64(sequence))


def _stable_words(name: str) -> tuple[int, ...]:
    """128 bits of the name's SHA-256, as the 32-bit words that a spawn key is made of."""
    digest = hashlib.sha256(name.encode()).digest()
    return tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4))
