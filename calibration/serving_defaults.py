"""The batch limits that vLLM's API server takes when none are given."""

from calibration.gpu_spec import GIB, GpuSpec


def serving_defaults(gpu: GpuSpec) -> tuple[int, int]:
    """Return (max_num_batched_tokens, max_num_seqs) for a GPU.

    As vLLM 0.29's API server: 16384 and 1024 on GPUs of 160 GiB and up, 8192 and 1024 on 70 GiB
    and up except the A100, else 2048 and 256.
    """
    if gpu.usable_memory_bytes >= 160 * GIB:
        return 16384, 1024
    if gpu.usable_memory_bytes >= 70 * GIB and "a100" not in gpu.name:
        return 8192, 1024
    return 2048, 256
