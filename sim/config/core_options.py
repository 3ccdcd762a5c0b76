"""Which core runs a study: the compiled one, or the pure Python reference."""

from __future__ import annotations

from sim._core import native
from sim.config.resolved import COMPILED, OUR_SCHEDULER, PYTHON, CoreName
from sim.config.schema import EngineSection
from sim.errors import StudyError


def resolve_core(section: EngineSection) -> CoreName:
    """The core that `engine.core` asks for; with `auto` the compiled one where it can.

    Both give the same results, bit for bit. Raises `StudyError` if `compiled` can't be.
    """
    if section.core == "python":
        return PYTHON
    reason = _why_not(section)
    if reason is None:
        return COMPILED
    if section.core == "compiled":
        raise StudyError(
            f"engine.core: compiled can't run this study: {reason}; set it to auto or python"
        )
    return PYTHON


def _why_not(section: EngineSection) -> str | None:
    """Why the compiled core can't run it; None if it can."""
    reasons = {
        "it was not built with this installation (no C compiler?)": native is None,
        "scheduler is not headway's own": section.scheduler != OUR_SCHEDULER,
        "scheduling_policy is neither fcfs nor priority": section.scheduling_policy
        not in ("fcfs", "priority"),
        "leap is false, which asks for the stepping reference in Python": not section.leap,
        "explain is true, and it does not explain waits": section.explain,
        "speculative_config is given, and it has no drafts": section.speculative_config is not None,
        "max_loras is given, and it has no adapters": section.max_loras > 0,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)
