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
        raise StudyError(f"engine.core: compiled can't run this study: {reason}")
    return PYTHON


def _why_not(section: EngineSection) -> str | None:
    """Why the compiled core can't run it; None if it can."""
    if native is None:
        return "it was not built with this installation (no C compiler?); set core to auto"
    if section.scheduler != OUR_SCHEDULER:
        return f"scheduler is {section.scheduler!r}; it holds Headway's own only"
    if not section.leap:
        return "leap is false, which asks for the stepping reference in Python"
    if section.scheduling_policy not in ("fcfs", "priority"):
        return f"scheduling_policy is {section.scheduling_policy!r}; it knows fcfs and priority"
    if section.explain:
        return "it does not explain waits; set explain to false or core to auto"
    if section.speculative_config is not None:
        return "it has no speculative decoding; remove speculative_config or set core to auto"
    if section.max_loras:
        return "it has no LoRA cap; remove max_loras or set core to auto"
    return None
