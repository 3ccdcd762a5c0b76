"""The `sweep` section: which keys of a study take which values, and on what they are run.

sweep:
  grid:
    engine.max_num_batched_tokens: [1024, 2048, 4096]
    trace.rate_scale: [0.5, 1.0, 2.0]
  seeds: 5
  executor: joblib
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from sim.config.messages import first_error
from sim.config.schema import Count, Natural, NotNegative, Section
from sim.errors import StudyError

Executor = Literal["joblib", "serial", "ray", "dask"]


class RangeSection(Section):
    """A range to draw values from; only for samples. `log`: evenly in the logarithm."""

    low: float = Field(allow_inf_nan=False)
    high: float = Field(allow_inf_nan=False)
    log: bool = False
    integer: bool = False


class SampleSection(Section):
    """So many points of the grid instead of all."""

    method: Literal["random", "sobol"] = "sobol"
    points: Count
    seed: Natural = 0


class TrimSection(Section):
    """What to leave out at both ends of a run before latencies are taken.

    `time`: seconds of arrivals; `count`: requests; `mser`: the start is found by MSER-5.
    """

    by: Literal["time", "count", "mser"]
    start: NotNegative = 0.0
    end: NotNegative = 0.0


class SweepSection(Section):
    """What to vary and how to run it.

    `seeds`: a list, or how many from the study's own seed on. `jobs`: processes; -1 is one a
    core. `address`: of a Ray or Dask cluster; a local one is started without it.
    """

    grid: dict[str, list[Any] | RangeSection]
    seeds: Count | Annotated[list[Natural], Field(min_length=1)] = 1
    sample: SampleSection | None = None
    trim: TrimSection | None = None
    executor: Executor = "joblib"
    jobs: int = -1
    address: str | None = None


def parse_sweep(values: Mapping[str, Any], source: str) -> SweepSection:
    """Validate a sweep section; `source` names it in messages.

    Raises:
        StudyError: a key or value is not right, or a key of the grid has no values.
    """
    try:
        section = SweepSection.model_validate(dict(values))
    except ValidationError as error:
        path, sentence = first_error(error, SweepSection)
        raise StudyError(f"{source}: sweep.{path}: {sentence}") from error
    for key, choices in section.grid.items():
        _check_choices(f"{source}: sweep.grid.{key}", choices, section.sample is not None)
    if section.jobs == 0 or section.jobs < -1:
        raise StudyError(f"{source}: sweep.jobs: {section.jobs}; give 1 or more, or -1 for all")
    return section


def _check_choices(where: str, choices: list[Any] | RangeSection, sampled: bool) -> None:
    if isinstance(choices, list):
        if not choices:
            raise StudyError(f"{where}: the list of values is empty; the grid has no points")
        return
    if not sampled:
        raise StudyError(f"{where}: a range has no grid points; give a list, or sweep.sample")
    if choices.high <= choices.low or (choices.log and choices.low <= 0):
        raise StudyError(
            f"{where}: {choices.low:g} to {choices.high:g} is no range"
            + (" for a logarithm" if choices.log else "")
        )
