"""The queue policy of an engine section: vLLM's own two, or one of `policies`."""

from typing import Literal

from policies import VLLM_POLICIES, PolicyError, can_leap, make_queue_policy
from sim.config.resolved import OUR_SCHEDULER, EngineConfig
from sim.config.schema import EngineSection
from sim.errors import StudyError


def vllm_policy(section: EngineSection) -> Literal["fcfs", "priority"]:
    """The scheduler's own policy; any other takes its place (see `resolve_queue_policy`)."""
    return "priority" if section.scheduling_policy == "priority" else "fcfs"


def resolve_queue_policy(section: EngineSection) -> str | None:
    """The name of a policy beside vLLM's own two, which was made once to see that it can be.

    Raises:
        StudyError: there is none of this name, an option is not right, or the scheduler is not
            ours and has only its own policies.
    """
    name = section.scheduling_policy
    if name in VLLM_POLICIES:
        if section.policy_options:
            raise StudyError(f"engine.policy_options: the scheduling policy {name!r} has none")
        if section.predicted_length_error:
            raise StudyError(
                f"engine.predicted_length_error: the scheduling policy {name!r} asks for no "
                "predictions"
            )
        return None
    if section.scheduler != OUR_SCHEDULER:
        raise StudyError(
            f"engine.scheduling_policy: {name!r} is not one of the policies of the scheduler "
            f"{section.scheduler!r}: {' and '.join(VLLM_POLICIES)}"
        )
    try:
        make_queue_policy(name, section.policy_options)
    except PolicyError as error:
        raise StudyError(f"engine.scheduling_policy: {error}") from error
    return name


def stepping_warnings(engine: EngineConfig) -> tuple[str, ...]:
    """Said where leaps were asked for and a policy does not allow them."""
    name = engine.queue_policy
    if name is None or not engine.leap or can_leap(make_queue_policy(name, engine.policy_options)):
        return ()
    return (
        f"engine.leap: steps are taken one by one, since the scheduling policy {name!r} may change "
        "its order, or preempt, at any step; results are the same, the run takes longer",
    )
