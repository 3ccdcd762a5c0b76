"""Number formats of weights, activations and KV caches, and their widths."""

from calibration.errors import CalibrationError
from calibration.names import unknown_name

DTYPE_BYTES: dict[str, int] = {"bfloat16": 2, "float16": 2, "float32": 4}
"""Unquantised formats, by their torch names, and bytes a number."""

KV_DTYPE_BYTES: dict[str, int] = {
    "bfloat16": 2,
    "float16": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
}
"""Formats of the KV cache, by vLLM's `--kv-cache-dtype` names, and bytes a number."""


def kv_dtype_bytes(kv_cache_dtype: str, model_dtype: str) -> int:
    """Return the bytes of one number in the KV cache; `auto` is the model's own dtype, as in vLLM.

    Raises:
        CalibrationError: an unknown format.
    """
    if kv_cache_dtype == "auto":
        return DTYPE_BYTES[model_dtype]
    if kv_cache_dtype not in KV_DTYPE_BYTES:
        raise CalibrationError(
            unknown_name("kv_cache_dtype", kv_cache_dtype, ["auto", *KV_DTYPE_BYTES])
        )
    return KV_DTYPE_BYTES[kv_cache_dtype]
