"""The folder of one GPU's kernel tables: where it is, which version, what is in it."""

import re
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from calibration.errors import CalibrationError, UnmeasuredError
from calibration.experts import Experts
from calibration.kernels.all_reduce import read_all_reduce, read_fused_all_reduce, with_fused
from calibration.kernels.attention import AttentionTables
from calibration.kernels.curves import Curve
from calibration.kernels.gemm import GemmTable, read_gemm
from calibration.kernels.moe import experts_curve, read_experts
from calibration.kernels.reading import KernelColumns
from calibration.names import unknown_name

SYSTEMS = {
    "a100_sxm": "a100-sxm-80gb",
    "b200_sxm": "b200-sxm-180gb",
    "h100_sxm": "h100-sxm-80gb",
    "h200_sxm": "h200-sxm-141gb",
    "l40s": "l40s",
    "rtx_pro_6000_server": "rtx-pro-6000",
}
"""The tables' names of GPUs, and ours."""

_DISTRIBUTION = "aiconfigurator_core"
_ENGINE = "vllm"
_FUSING = ("b200_sxm",)
"""Where all-reduces are taken as vLLM fuses them. Elsewhere its own are hardly slower (H100: 1 to 2
us of 5 to 8), and the runs that this package is held against are older than the fusion."""
_FUSED_FROM = "trtllm"


@dataclass(frozen=True)
class KernelTables:
    """Measured kernels of one GPU under vLLM; each file is read when it is first asked for."""

    system: str
    folder: Path
    versions: dict[str, str]
    files: dict[str, Path]

    @property
    def gpu_name(self) -> str:
        """Our name of the GPU."""
        return SYSTEMS[self.system]

    def releases(self, tensor_parallel_size: int, *, with_experts: bool) -> str:
        """Name the release of the kernels that a model takes, and the parts that are of another.

        Tables of one GPU are not all measured anew for each release.
        """
        used = ["gemm", "context_attention", *(["moe"] if with_experts else [])]
        used += ["all_reduce", "fused_all_reduce"] if tensor_parallel_size > 1 else []
        main = self.versions["generation_attention"]
        others = [
            f"{part.replace('_', ' ')} of {self.versions[part]}"
            for part in used
            if self.versions.get(part, main) != main
        ]
        return ", ".join([f"vLLM {main} kernels", *others])

    @cached_property
    def gemm(self) -> dict[str, GemmTable]:
        """Products by their format."""
        return read_gemm(self.files["gemm"])

    @cached_property
    def attention(self) -> AttentionTables:
        """Attention of prompts and of decodes."""
        return AttentionTables(self.files["context_attention"], self.files["generation_attention"])

    @cached_property
    def all_reduce(self) -> dict[int, Curve]:
        """All-reduces over message bytes, by group size."""
        own = read_all_reduce(self.files["all_reduce"])
        if "fused_all_reduce" not in self.files:
            return own
        return with_fused(own, read_fused_all_reduce(self.files["fused_all_reduce"]))

    def experts_of(
        self, experts: Experts, hidden_size: int, tp: int, *, expert_parallel: bool = False
    ) -> Curve:
        """Return the times of a layer's experts over tokens.

        Raises:
            UnmeasuredError: not measured on this GPU.
        """
        if "moe" not in self.files:
            raise UnmeasuredError(f"{self.folder}: has no table of experts (moe_perf.parquet)")
        return experts_curve(
            self._experts,
            self.files["moe"],
            experts,
            hidden_size,
            tp,
            expert_parallel=expert_parallel,
        )

    @cached_property
    def _experts(self) -> KernelColumns:
        return read_experts(self.files["moe"])

    def gemm_of(self, dtype: str) -> GemmTable:
        """Return the products of one format.

        Raises:
            UnmeasuredError: not measured on this GPU.
        """
        if dtype not in self.gemm:
            raise UnmeasuredError(
                f"{self.files['gemm']}: has no {dtype} products; it has {', '.join(self.gemm)}"
            )
        return self.gemm[dtype]


_PARTS = {
    "gemm": ("gemm", "gemm_perf.parquet"),
    "context_attention": ("attention", "context_attention_perf.parquet"),
    "generation_attention": ("attention", "generation_attention_perf.parquet"),
    "all_reduce": ("comm", "custom_allreduce_perf.parquet"),
}


def find_kernel_data() -> Path:
    """Return the tables' folder in an installed aiconfigurator-core, without importing it.

    Raises:
        CalibrationError: it is not installed.
    """
    spec = find_spec(_DISTRIBUTION)
    if spec is None or spec.origin is None:
        raise CalibrationError(
            "the kernel tables are not installed: pip install 'headway[aic]', or give their folder"
            " with --data"
        )
    return Path(spec.origin).parent / "systems" / "data"


def load_kernel_tables(data: Path, system: str) -> KernelTables:
    """Return one GPU's tables of the newest vLLM version that has each.

    Args:
        data: folder with a subfolder for each system.
        system: its name ("h100_sxm"), or ours ("h100-sxm-80gb").

    Raises:
        CalibrationError: no such system, or a table is missing.
    """
    ours = {gpu: name for name, gpu in SYSTEMS.items()}
    name = ours.get(system, system)
    if name not in SYSTEMS:
        raise CalibrationError(unknown_name("system", system, SYSTEMS))
    folder = data / name
    if not folder.is_dir():
        present = sorted(child.name for child in data.iterdir()) if data.is_dir() else []
        has = f"it has {', '.join(present)}" if present else "it is empty or no folder"
        raise CalibrationError(f"{data}: has no folder {name}; {has}")
    files = {
        part: _newest(folder / place / _ENGINE, file) for part, (place, file) in _PARTS.items()
    }
    if (folder / "moe" / _ENGINE).is_dir():
        files["moe"] = _newest(folder / "moe" / _ENGINE, "moe_perf.parquet")
    fused = sorted(
        (folder / "comm" / _FUSED_FROM).glob("*/custom_allreduce_perf.parquet"), key=_age
    )
    if name in _FUSING and fused:
        files["fused_all_reduce"] = fused[-1]
    versions = {part: path.parent.name for part, path in files.items()}
    if "fused_all_reduce" in versions:
        versions["fused_all_reduce"] = f"(TensorRT-LLM's) {versions['fused_all_reduce']}"
    return KernelTables(name, folder, versions, files)


def _age(file: Path) -> list[int]:
    """Orders versions that are release candidates: 1.3.0rc9 before 1.3.0rc20."""
    return [int(number) for number in re.findall(r"\d+", file.parent.name)]


def _newest(folder: Path, file: str) -> Path:
    found = [path for path in folder.glob(f"*/{file}") if _version(path.parent.name) is not None]
    if not found:
        raise CalibrationError(f"{folder}: has no {file} of any version")
    return max(found, key=lambda path: _version(path.parent.name) or ())


def _version(name: str) -> tuple[int, ...] | None:
    """Return a release's number ("0.24.0"); None for development versions."""
    parts = name.split(".")
    return tuple(map(int, parts)) if all(part.isdigit() for part in parts) else None
