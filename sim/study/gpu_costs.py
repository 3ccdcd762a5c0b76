"""What GPUs draw and cost: board power from data sheets, prices from the user."""

from collections.abc import Mapping, Sequence

from calibration import load_gpu
from sim.errors import StudyError

BOARD_WATTS: dict[str, int] = {
    # Maximum board power, from the maker's data sheet of each product.
    "a100-sxm-40gb": 400,
    "a100-sxm-80gb": 400,
    "h100-sxm-80gb": 700,
    "h200-sxm-141gb": 700,
    "b200-sxm-180gb": 1000,
    "l40s": 350,
    "l4": 72,
    "rtx-4090": 450,
    "rtx-pro-6000": 600,
}


def watts(hardware: str, gpus: int) -> int | None:
    """Board power of so many GPUs at their limit, without hosts and cooling; None if unknown."""
    one = BOARD_WATTS.get(hardware)
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
