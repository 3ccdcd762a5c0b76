"""How long a step takes: step shapes, cost models, model and GPU descriptions."""

from calibration.cost_model import (
    CostModel,
    CostProvenance,
    FloatArray,
    HasCompiledForm,
    HasCoverage,
)
from calibration.ensemble import ProfileUncertainty, profile_ensemble, profile_uncertainty
from calibration.errors import CalibrationError, InterruptedCalibrationError, UnmeasuredError
from calibration.gpu_spec import GpuSpec, gpu_names, load_gpu
from calibration.kv_capacity import KvCapacity, compute_num_gpu_blocks, kv_cache_bytes_per_token
from calibration.load_model import load_model, model_names
from calibration.model_spec import ModelSpec
from calibration.profile_archive import shipped_profile, shipped_profile_names
from calibration.profile_cost import ProfileCost, load_profile
from calibration.profile_format import Profile, ProfileProvenance, parse_profile, read_profile
from calibration.quantization import Quantization
from calibration.roofline_cost import RooflineCost
from calibration.serving_defaults import serving_defaults
from calibration.simple_costs import ConstantCost, LinearCost
from calibration.step_shape import StepShape, decode_shape, later_shape

__all__ = [
    "CalibrationError",
    "ConstantCost",
    "CostModel",
    "CostProvenance",
    "FloatArray",
    "GpuSpec",
    "HasCompiledForm",
    "HasCoverage",
    "InterruptedCalibrationError",
    "KvCapacity",
    "LinearCost",
    "ModelSpec",
    "Profile",
    "ProfileCost",
    "ProfileProvenance",
    "ProfileUncertainty",
    "Quantization",
    "RooflineCost",
    "StepShape",
    "UnmeasuredError",
    "compute_num_gpu_blocks",
    "decode_shape",
    "gpu_names",
    "kv_cache_bytes_per_token",
    "later_shape",
    "load_gpu",
    "load_model",
    "load_profile",
    "model_names",
    "parse_profile",
    "profile_ensemble",
    "profile_uncertainty",
    "read_profile",
    "serving_defaults",
    "shipped_profile",
    "shipped_profile_names",
]
