"""The load section of mode sessions, checked against the trace."""

import numpy as np
import numpy.typing as npt

from sim.config.resolved import SessionLoad
from sim.config.schema import SessionLoadSection
from sim.errors import StudyError
from traces import Trace, parent_rows, session_numbers


def resolve_session_load(section: SessionLoadSection, trace: Trace) -> SessionLoad:
    """The load of a study in sessions.

    Raises:
        StudyError: the trace has no sessions, too few, or unknown think times.
    """
    follow_ups = parent_rows(trace) >= 0
    if not follow_ups.any():
        raise StudyError(
            "load: mode sessions needs a trace in which requests follow one another (parent_id); "
            "this one has none; use mode open or closed"
        )
    if section.think_time_s is None:
        _check_think_times(trace, follow_ups)
    num_sessions = int(session_numbers(trace).max()) + 1
    if section.concurrency is not None and section.concurrency > num_sessions:
        raise StudyError(
            f"load: {section.concurrency} sessions at once need as many, the trace has "
            f"{num_sessions}"
        )
    return SessionLoad(section.concurrency, section.ramp_s, section.think_time_s)


def _check_think_times(trace: Trace, follow_ups: npt.NDArray[np.bool_]) -> None:
    think_s = trace.think_time_s
    unknown = follow_ups if think_s is None else follow_ups & np.isnan(think_s)
    if unknown.any():
        raise StudyError(
            f"load: {int(unknown.sum())} of {int(follow_ups.sum())} follow-up requests have no "
            "recorded think time; give load.think_time_s for those"
        )
