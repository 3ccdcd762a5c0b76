"""The cost model section to a `CostModel`."""

from calibration import (
    ConstantCost,
    CostModel,
    GpuSpec,
    LinearCost,
    ModelSpec,
    RooflineCost,
    load_profile,
)
from sim.config.schema import (
    ConstantCostSection,
    LinearCostSection,
    ProfileCostSection,
    RooflineCostSection,
)

AnyCostSection = ConstantCostSection | LinearCostSection | RooflineCostSection | ProfileCostSection


def resolve_cost_model(
    section: AnyCostSection,
    model: ModelSpec,
    gpu: GpuSpec,
    tensor_parallel_size: int,
    kv_cache_dtype: str,
) -> CostModel:
    """Build the cost model for a replica of `tensor_parallel_size` GPUs.

    Raises:
        CalibrationError: a value that makes no sense, or a profile that is broken or of
            something else.
    """
    match section:
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
            )
        case RooflineCostSection():
            return RooflineCost(
                model,
                gpu,
                tensor_parallel_size=tensor_parallel_size,
                kv_cache_dtype=kv_cache_dtype,
                overhead_s=section.overhead_s,
            )
