"""What runs a batch: the decoder with its cache."""

from __future__ import annotations

from typing import Protocol

from calibration import CalibrationError
from calibration.bench.attention import make_cache
from calibration.bench.decoder import Decoder
from calibration.bench.step_batch import StepBatch


class ModelRunner(Protocol):
    """Computes a batch."""

    def run(self, batch: StepBatch) -> list[int]:
        """Return the next token of every piece that wants one, in the batch's order."""
        ...


class DecoderRunner:
    """The torch decoder with a cache of the scheduler's own number of blocks.

    Raises `CalibrationError` if the memory is too small for the cache.
    """

    def __init__(self, decoder: Decoder, num_gpu_blocks: int, block_size: int) -> None:
        self._decoder = decoder
        self._cache = make_cache(
            decoder.model, num_gpu_blocks, block_size, decoder.device, decoder.dtype
        )

    def run(self, batch: StepBatch) -> list[int]:
        """Run the model and wait for its tokens. Raises `CalibrationError` if the device fails."""
        try:
            return self._decoder.step(batch, self._cache)
        except RuntimeError as error:
            raise CalibrationError(f"{self._decoder.device.name} failed: {error}") from error
