"""Attention of a chunk that has context before it, from the times of whole prompts.

Kernel tables time prompts without context. A chunk of n tokens after c computed ones does exactly
the arithmetic of a prompt of c + n tokens less that of a prompt of c. So

    time(n, c) = max( launch + A(c + n) - A(c),  A(n),  D(c + n) )

with A a whole prompt's time, D one decode's time over its context (it reads the same keys and
values), launch the fixed part of both. A between its points: launch + rate(x) * x^2 / 2 with the
rate interpolated, so that a difference of two lengths is smooth; beyond the last point the rate
stays, as it has levelled off by then.

Held against measured chunks (vLLM 0.19's profiles of RTX PRO 6000 and RTX 4090, contexts up to
16 k): bias +1 to +17 % for chunks of 512 tokens and more, -3 to +18 % at 256 to 410, too low by 15
to 65 % below 256 tokens, where that kernel leaves most of the GPU idle. A profile with measured
chunks needs none of this.
"""

import numpy as np

from calibration.cost_model import FloatArray
from calibration.kernels.curves import Curve


def chunk_times_us(
    prompt: Curve, decode_one: Curve, new_tokens: FloatArray, computed_tokens: FloatArray
) -> FloatArray:
    """Return one layer's times, [i, j] for new_tokens[i] after computed_tokens[j]."""
    launch_us = launch_time_us(prompt)
    new, computed = new_tokens[:, None], computed_tokens[None, :]
    total = new + computed
    difference = launch_us + _prompt_us(prompt, total) - _prompt_us(prompt, computed)
    whole = np.broadcast_to(_prompt_us(prompt, new), total.shape)
    read = decode_one.at(total.ravel()).reshape(total.shape)
    return np.maximum(np.maximum(difference, whole), read)


def launch_time_us(prompt: Curve) -> float:
    """Return the fixed time of the kernel: what the shortest prompt takes."""
    return float(prompt.time_us.min())


def _prompt_us(prompt: Curve, tokens: FloatArray) -> FloatArray:
    launch_us = launch_time_us(prompt)
    pairs = prompt.axis**2 / 2
    rates = (prompt.time_us - launch_us) / pairs
    return launch_us + np.interp(tokens, prompt.axis, rates) * tokens**2 / 2
