"""The speculative section to the scheduler's options and to what becomes of the drafts."""

from __future__ import annotations

from typing import Any

from sim.config.resolved import EngineConfig
from sim.config.schema import EngineSection, SpeculativeSection
from sim.drafts import Drafting
from sim.errors import StudyError
from sim.scheduler.drafting import ASYNC_METHODS, drafting_options

_WHERE = "engine.speculative_config"
_OUTCOMES = ("acceptance_rate", "acceptance_rates", "accepted_lengths")


def goes_async(section: EngineSection) -> bool:
    """Whether steps are scheduled ahead: as asked for, else wherever vLLM can."""
    if section.async_scheduling is not None:
        return section.async_scheduling
    speculative = section.speculative_config
    return speculative is None or speculative.method in ASYNC_METHODS


def scheduler_drafting_options(section: EngineSection) -> dict[str, Any]:
    """Fields of `SchedulerConfig` that the section sets; none without drafts.

    Raises `SchedulerConfigError` for a method that is not modelled, `StudyError` for one that
    vLLM refuses with asynchronous scheduling.
    """
    speculative = section.speculative_config
    if speculative is None:
        return {}
    options = drafting_options(
        speculative.method,
        speculative.num_speculative_tokens,
        parallel=speculative.parallel_drafting,
    )
    if goes_async(section) and speculative.method not in ASYNC_METHODS:
        raise StudyError(
            f"{_WHERE}.method: {speculative.method!r} does not go with async_scheduling; set "
            f"engine.async_scheduling to false, or take one of {', '.join(ASYNC_METHODS)}"
        )
    return {"num_speculative_tokens": speculative.num_speculative_tokens, **options}


def resolve_drafting(section: SpeculativeSection | None) -> Drafting | None:
    """What becomes of the drafts. Raises `StudyError` unless exactly one way is given."""
    if section is None:
        return None
    given = [name for name in _OUTCOMES if getattr(section, name) is not None]
    if len(given) != 1:
        raise StudyError(
            f"{_WHERE}: give exactly one of {', '.join(_OUTCOMES)}; "
            f"given: {', '.join(given) or 'none'}"
        )
    return Drafting(
        num_speculative_tokens=section.num_speculative_tokens,
        acceptance_rates=_rates(section),
        accepted_lengths=tuple(section.accepted_lengths or ()),
        proposal_rate=section.proposal_rate,
        draft_step_s=section.draft_step_s,
    )


def drafting_warnings(engine: EngineConfig) -> tuple[str, ...]:
    """Say that drafts cost nothing where no time is given for them."""
    if engine.drafting is None or engine.drafting.draft_step_s > 0:
        return ()
    return (
        f"{_WHERE}.draft_step_s is 0: the time to make drafts is not counted, nor what a draft "
        "model takes of the memory",
    )


def _rates(section: SpeculativeSection) -> tuple[float, ...]:
    num_drafts = section.num_speculative_tokens
    if section.acceptance_rate is not None:
        return (section.acceptance_rate,) * num_drafts
    rates = tuple(section.acceptance_rates or ())
    if rates and len(rates) != num_drafts:
        raise StudyError(
            f"{_WHERE}.acceptance_rates: {len(rates)} rates for {num_drafts} "
            "num_speculative_tokens; there must be one for each position"
        )
    return rates
