"""The cost model section to a `CostModel`."""

import numpy as np

from calibration import (
    ConstantCost,
    CostModel,
    GpuSpec,
    LinearCost,
    ModelSpec,
    ProfileCost,
    RooflineCost,
    load_profile,
    shipped_profile,
)
from sim.config.schema import (
    AutoCostSection,
    ConstantCostSection,
    LinearCostSection,
    ProfileCostSection,
    RooflineCostSection,
)
from traces import Trace

AnyCostSection = (
    AutoCostSection
    | ConstantCostSection
    | LinearCostSection
    | RooflineCostSection
    | ProfileCostSection
)


def resolve_cost_model(
    section: AnyCostSection,
    model: ModelSpec,
    gpu: GpuSpec,
    tensor_parallel_size: int,
    kv_cache_dtype: str,
    *,
    expert_parallel: bool = False,
) -> CostModel:
    """Build the cost model for a replica of `tensor_parallel_size` GPUs.

    Raises:
        CalibrationError: a value that makes no sense, or a profile that is broken or of
            something else.
    """
    match section:
        case AutoCostSection():
            shipped = shipped_profile(
                model,
                gpu,
                tensor_parallel_size,
                kv_cache_dtype,
                expert_parallel=expert_parallel,
            )
            if shipped is not None:
                return shipped
            return RooflineCost(
                model,
                gpu,
                tensor_parallel_size=tensor_parallel_size,
                kv_cache_dtype=kv_cache_dtype,
            )
        case ConstantCostSection():
            return ConstantCost(section.step_s)
        case LinearCostSection():
            return LinearCost(**section.model_dump(exclude={"kind"}))
        case ProfileCostSection():
            return load_profile(
                section.path,
                model=model,
                gpu=gpu,
                tensor_parallel_size=tensor_parallel_size,
                kv_cache_dtype=kv_cache_dtype,
                expert_parallel=expert_parallel and tensor_parallel_size > 1,
            )
        case RooflineCostSection():
            return RooflineCost(
                model,
                gpu,
                tensor_parallel_size=tensor_parallel_size,
                kv_cache_dtype=kv_cache_dtype,
                overhead_s=section.overhead_s,
            )


def cost_model_warnings(
    section: AnyCostSection, cost_model: CostModel, model: ModelSpec, gpu: GpuSpec
) -> tuple[str, ...]:
    """Return what a reader should know of how the cost model was chosen, one sentence each."""
    if not isinstance(section, AutoCostSection) or cost_model.provenance.calibrated:
        return ()
    return (
        f"no measured profile of {model.name} in {model.weight_dtype} on {gpu.name} at this"
        " tensor parallel size ships with Headway, so steps take what the roofline allows at best;"
        " `headway calibrate` makes a profile",
    )


def skew_warnings(cost_model: CostModel, trace: Trace, max_model_len: int) -> tuple[str, ...]:
    """Say if requests outgrow what a profile's correction for unlike contexts was measured on.

    Rows of steps hold sums of contexts, so the count of steps beyond the calibrated range knows
    nothing of a single long one.
    """
    if not isinstance(cost_model, ProfileCost) or cost_model.profile.decode_skew is None:
        return ()
    measured = cost_model.profile.decode_attention.columns[-1]
    lengths = np.minimum(trace.num_prompt_tokens + trace.num_output_tokens, max_model_len)
    num_longer = int(np.count_nonzero(lengths > measured))
    if not num_longer:
        return ()
    return (
        f"requests that grow beyond {measured:g} tokens, the longest context of the profile:"
        f" {num_longer:,}; what they add to decodes of shorter contexts is extrapolated",
    )
