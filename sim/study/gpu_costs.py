"""What GPUs draw and cost: board power from data sheets, prices from the user."""

from collections.abc import Mapping, Sequence

from calibration import load_gpu
from sim.errors import StudyError
from sim.study.plan import Plan


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


def check_prices(prices: Mapping[str, float], plan: Plan) -> None:
    """Raise StudyError unless prices, where there are any, are of every GPU of a plan.

    A GPU without a price would be compared as if it cost something else.
    """
    if not prices:
        return
    used = {load_gpu(point.file.hardware).name for point in plan.points()}
    missing = sorted(used - set(prices))
    if missing:
        raise StudyError(
            f"--price: {' and '.join(missing)} has none; give one of every GPU that is compared, "
            f"as in --price {missing[0]}=2.5"
        )


def dollars_an_hour(hardware: str, gpus: int, prices: Mapping[str, float]) -> float | None:
    """Price of so many GPUs for an hour; None if no price was given."""
    price = prices.get(hardware)
    return None if price is None else price * gpus
