"""GPUs by their data sheets."""

from dataclasses import dataclass

from calibration.errors import CalibrationError
from calibration.names import unknown_name
from calibration.shipped import find_entry, read_table

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """Peak rates of one GPU; no kernel reaches all of them at once.

    Attributes:
        bf16_flops: dense 16-bit operations a second, fp32 accumulation.
        fp8_flops: dense 8-bit operations a second, None where the GPU has none.
        memory_bytes: advertised capacity.
        usable_memory_bytes: what CUDA reports as the device's total.
        memory_bytes_per_s: bandwidth of device memory.
        link: what joins it to its peers.
        link_bytes_per_s: bandwidth of that link, one direction.
        board_watts: maximum power of the board, without host and cooling; None if unknown.
        source: the document the figures are from.
        fp4_flops: dense 4-bit operations a second, None where the GPU has none.
    """

    name: str
    bf16_flops: float
    fp8_flops: float | None
    memory_bytes: int
    usable_memory_bytes: int
    memory_bytes_per_s: float
    link: str
    link_bytes_per_s: float
    source: str
    fp4_flops: float | None = None
    board_watts: int | None = None


def gpu_names() -> list[str]:
    """Return the names of all GPUs that are built in."""
    return list(read_table("gpus.json", "gpus"))


def load_gpu(name: str) -> GpuSpec:
    """Return a built-in GPU by its name or an alias, in any case ("H100", "rtx 4090").

    Raises:
        CalibrationError: unknown name; the nearest known one is offered.
    """
    table = read_table("gpus.json", "gpus")
    wanted = name.strip().lower().replace(" ", "-").removeprefix("nvidia-")
    found = find_entry(table, wanted)
    if found is None:
        raise CalibrationError(unknown_name("GPU", name, table))
    entry = table[found]
    return GpuSpec(
        name=found,
        bf16_flops=entry["bf16_flops"],
        fp8_flops=entry["fp8_flops"],
        memory_bytes=entry["memory_gib"] * GIB,
        usable_memory_bytes=round(entry["usable_memory_gib"] * GIB),
        memory_bytes_per_s=entry["memory_bytes_per_s"],
        link=entry["link"],
        link_bytes_per_s=entry["link_bytes_per_s"],
        board_watts=entry["board_watts"],
        source=entry["source"],
        fp4_flops=entry.get("fp4_flops"),
    )
