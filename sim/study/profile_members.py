"""One of the profiles that are as likely as a study's own, given its errors."""

from dataclasses import dataclass

from calibration import (
    CalibrationError,
    CostModel,
    ProfileCost,
    profile_ensemble,
    profile_uncertainty,
)
from sim.config import ResolvedStudy
from sim.intervals import profile_with_errors
from sim.rng import Streams

NUM_MEMBERS = 8
"""Each is a search of some probes near the answer. Eight tell the spread to within 25 %, which
Student's factor of 2.31, in place of the normal's 1.96, allows for."""


@dataclass(frozen=True, slots=True)
class Member:
    """Profile `number` of an ensemble of `count` that is drawn from `seed`."""

    number: int
    count: int
    seed: int


def member_cost(study: ResolvedStudy, member: Member) -> CostModel:
    """The member's step times; the same factors for every study whose errors are alike.

    Raises:
        StudyError: the cost model is no measured profile.
        CalibrationError: the profile says nothing about its errors.
    """
    rng = Streams(member.seed).rng("intervals")
    profile = profile_with_errors(study).profile
    return profile_ensemble(profile, member.count, rng)[member.number]


def lacks_host_time(study: ResolvedStudy) -> bool:
    """Whether steps are sums of kernels: neither study nor profile has any time of the host."""
    cost, engine = study.cost_model, study.engine
    if not isinstance(cost, ProfileCost) or cost.profile.step_overhead_us:
        return False
    return not (engine.host_overhead_s or engine.host_overhead_per_request_s)


def unknown_error(study: ResolvedStudy) -> str | None:
    """Why nothing is known of the error of a study's step times; None if something is."""
    cost = study.cost_model
    if not isinstance(cost, ProfileCost):
        return f"the cost model is {cost.provenance.kind}, which has none on record"
    try:
        profile_uncertainty(cost.profile)
    except CalibrationError:
        return "the measured profile has none on record"
    return None
