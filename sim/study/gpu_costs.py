"""What GPUs draw and cost: board power from data sheets, prices from the user."""

from collections.abc import Mapping, Sequence

from calibration import load_gpu
from sim.errors import StudyError


def watts(hardware: str, gpus: int) -> int | None:
    """Board power of so many GPUs at their limit, without hosts and cooling; None if unknown.

    Raises:
        CalibrationError: no such GPU.
    """
    one = load_gpu(hardware).board_watts
    return None if one is None else one * gpus


def parse_prices(texts: Sequence[str]) -> dict[str, float]:
    """Read `h100=2.5`: dollars an hour for one GPU, by the GPU's own name.

    Raises:
        StudyError: no number; CalibrationError: no such GPU.
    """
    prices = {}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            price = float(number)
        except ValueError:
            price = -1.0
        if not 0 < price < float("inf"):
            raise StudyError(f"--price {text!r}: it must be GPU=dollars an hour, as in h100=2.5")
        prices[load_gpu(name).name] = price
    return prices


def dollars_an_hour(hardware: str, gpus: int, prices: Mapping[str, float]) -> float | None:
    """Price of so many GPUs for an hour; None if no price was given."""
    price = prices.get(hardware)
    return None if price is None else price * gpus
