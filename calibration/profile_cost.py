"""Step times from a measured profile."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from calibration.cost_model import CostProvenance, FloatArray
from calibration.gpu_spec import GpuSpec
from calibration.interpolation import Box, Grid, Line
from calibration.model_spec import ModelSpec
from calibration.profile_format import Profile, read_profile
from calibration.profile_match import check_match, check_plausible
from calibration.profile_tables import BoxTable, CurveTable, GridTable, ShareTable
from calibration.step_shape import StepShape, decode_shape, later_shape

_US = 1e-6
_VECTOR_FROM = 8  # below it, the scalar path is quicker than numpy's fixed cost


class ProfileCost:
    """Interpolates a profile's tables, linearly.

    time = dense(num_tokens) + logits(max(num_logits, 1)) + attention + overhead

    attention is decode_attention(num_decodes, mean context) where all pieces are of one token,
    else the sum of prefill_attention(chunk), less a launch for every piece after the first, plus
    what the decodes add: decode_beside_chunks where it was measured, else decode_attention less
    a launch.

    Contexts of unlike length take longer than as many of the mean length: kernels wait for the
    longest. Both decode terms are D(mean) + share(num_decodes) * (D(longest) - D(mean)), with the
    measured `decode_skew` and `decode_skew_beside_chunks`; 0 where they were not measured.

    A step beyond the tables is still computed (the last line goes on) and `out_of_range` says so;
    the run counts such steps and reports them.
    """

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self._dense = _line(profile.dense)
        self._logits = _line(profile.logits)
        self._prefill = _grid(profile.prefill_attention)
        self._decode = _grid(profile.decode_attention)
        self._beside = _box(profile.decode_beside_chunks)
        self._skew = _shares(profile.decode_skew)
        self._skew_beside = _shares(profile.decode_skew_beside_chunks)
        self._launch_s = profile.attention_launch_us * _US
        self._overhead_s = profile.step_overhead_us * _US
        # The line over contexts of each batch size met so far; a pure function of the table.
        self._decode_lines: dict[int, Line] = {}

    @property
    def provenance(self) -> CostProvenance:
        """Where the times come from."""
        measured = self.profile.provenance
        label = (
            f"profile: measured on {measured.device} with {measured.kernel_backend},"
            f" {measured.model} {measured.weight_dtype}"
            f" tensor parallel {measured.tensor_parallel_size}"
            f"{' with expert parallel' if measured.expert_parallel else ''}, {measured.date}"
        )
        details = {
            **asdict(measured),
            "path": self.profile.path,
            "sha256": self.profile.sha256,
            "step_overhead_us": self.profile.step_overhead_us,
            "fit": self.profile.fit,
        }
        return CostProvenance("profile", label, True, details)

    def step_time_s(self, shape: StepShape) -> float:
        """Return the interpolated device time of one step."""
        num_tokens, num_logits, num_decodes, _, chunks, _ = shape
        total_s = self._dense.at(num_tokens) + self._logits.at(max(num_logits, 1))
        if chunks:
            total_s += self._attention_with_chunks_s(shape)
        elif num_decodes:
            total_s += self._decodes_s(shape, self._skew)
        return total_s + self._overhead_s

    def decode_times_s(
        self,
        num_decodes: int,
        decode_context_tokens: int,
        num_steps: int,
        decode_max_context_tokens: int = 0,
    ) -> FloatArray:
        """Return the times of decode steps in a row; only the contexts change."""
        if num_steps < _VECTOR_FROM:
            first = decode_shape(num_decodes, decode_context_tokens, decode_max_context_tokens)
            shapes = [later_shape(first, i) for i in range(num_steps)]
            return np.array([self.step_time_s(shape) for shape in shapes], dtype=np.float64)
        steps = np.arange(num_steps, dtype=np.int64)
        means = (decode_context_tokens + num_decodes * steps) / num_decodes
        fixed_s = self._dense.at(num_decodes) + self._logits.at(max(num_decodes, 1))
        line = self._decode_line(num_decodes)
        attention_s = line.at_each(means)
        if self._skew is not None and decode_max_context_tokens > means[0]:
            longest_s = line.at_each((decode_max_context_tokens + steps).astype(np.float64))
            attention_s = attention_s + self._skew.at(num_decodes) * (longest_s - attention_s)
        times_s: FloatArray = fixed_s + attention_s
        times_s += self._overhead_s
        return times_s

    def compiled_form(self) -> dict[str, Any]:
        """Return the tables in seconds: lines as (x, y), grids as (columns, the line of each)."""
        return {
            "kind": "profile",
            "dense": self._dense.points(),
            "logits": self._logits.points(),
            "prefill_attention": self._prefill.points(),
            "decode_attention": self._decode.points(),
            "decode_beside_chunks": None if self._beside is None else self._beside.points(),
            "decode_skew": None if self._skew is None else self._skew.points(),
            "decode_skew_beside_chunks": (
                None if self._skew_beside is None else self._skew_beside.points()
            ),
            "launch_s": self._launch_s,
            "overhead_s": self._overhead_s,
        }

    def out_of_range(self, shape: StepShape) -> str | None:
        """Return why the step lies beyond the measured tables, None if it does not."""
        profile = self.profile
        most = profile.max_decode_context_tokens
        if most is not None and shape.decode_context_tokens > most:
            return f"decode context {shape.decode_context_tokens:g} in all is above {most:g}"
        reason = _beyond("num_tokens", shape.num_tokens, profile.dense.axis)
        if reason is None and shape.num_logits:
            reason = _beyond("num_logits", shape.num_logits, profile.logits.axis)
        if reason is None and shape.num_decodes:
            table = profile.decode_attention
            mean = shape.decode_context_tokens / shape.num_decodes
            reason = _beyond("num_decodes", shape.num_decodes, table.rows)
            reason = reason or _beyond("mean decode context", mean, table.columns)
        for new, computed in shape.chunks:
            if reason is not None:
                break
            prefill = profile.prefill_attention
            reason = _beyond("new tokens of a chunk", new, prefill.rows)
            reason = reason or _beyond("computed tokens of a chunk", computed, prefill.columns)
        return reason

    def _attention_with_chunks_s(self, shape: StepShape) -> float:
        total_s = -self._launch_s * (len(shape.chunks) - 1)
        for new, computed in shape.chunks:
            total_s += self._prefill.at(new, computed)
        if not shape.num_decodes:
            return total_s
        if self._beside is None:
            return total_s + (self._decodes_s(shape, self._skew_beside) - self._launch_s)
        return total_s + self._decodes_beside_s(shape, self._beside)

    def _decodes_s(self, shape: StepShape, skew: Line | None) -> float:
        """Return the attention of the one-token pieces in a launch of their own."""
        line = self._decode_line(shape.num_decodes)
        mean, longest = _contexts(shape)
        even_s = line.at(mean)
        if skew is None or longest <= mean:
            return even_s
        return even_s + skew.at(shape.num_decodes) * (line.at(longest) - even_s)

    def _decodes_beside_s(self, shape: StepShape, beside: Box) -> float:
        """Return what the one-token pieces add to the chunks."""
        num_new, num_decodes = sum(new for new, _ in shape.chunks), shape.num_decodes
        mean, longest = _contexts(shape)
        even_s = beside.at(num_new, num_decodes, mean)
        if self._skew_beside is None or longest <= mean:
            return even_s
        longest_s = beside.at(num_new, num_decodes, longest)
        return even_s + self._skew_beside.at(num_decodes) * (longest_s - even_s)

    def _decode_line(self, num_decodes: int) -> Line:
        line = self._decode_lines.get(num_decodes)
        if line is None:
            line = self._decode_lines[num_decodes] = self._decode.row(num_decodes)
        return line


def load_profile(
    path: str | Path,
    *,
    model: ModelSpec | None = None,
    gpu: GpuSpec | None = None,
    tensor_parallel_size: int | None = None,
    kv_cache_dtype: str | None = None,
    expert_parallel: bool | None = None,
) -> ProfileCost:
    """Read a profile for a study; what the study gives must be what was measured.

    Raises:
        CalibrationError: the file can't be used, was measured for something else, or holds times
            that the GPU could not reach (a wrong unit).
    """
    profile = read_profile(path)
    check_match(
        profile,
        model=model,
        gpu=gpu,
        tensor_parallel_size=tensor_parallel_size,
        kv_cache_dtype=kv_cache_dtype,
        expert_parallel=expert_parallel,
    )
    if model is not None and gpu is not None:
        check_plausible(profile, model, gpu)
    return ProfileCost(profile)


def _contexts(shape: StepShape) -> tuple[float, float]:
    """Return the mean context of the one-token pieces, and the longest."""
    mean = shape.decode_context_tokens / shape.num_decodes
    return mean, float(shape.decode_max_context_tokens)


def _shares(table: ShareTable | None) -> Line | None:
    """Beyond its last point the last share holds."""
    if table is None:
        return None
    return Line([*table.axis, table.axis[-1] + 1.0], [*table.share, table.share[-1]])


def _line(table: CurveTable) -> Line:
    return Line(table.axis, [time_us * _US for time_us in table.time_us])


def _grid(table: GridTable) -> Grid:
    times_s = [[time_us * _US for time_us in row] for row in table.time_us]
    return Grid(table.rows, table.columns, times_s)


def _box(table: BoxTable | None) -> Box | None:
    if table is None:
        return None
    grids = [
        Grid(table.rows, table.columns, [[time_us * _US for time_us in row] for row in layer])
        for layer in table.time_us
    ]
    return Box(table.layers, grids)


def _beyond(what: str, value: float, axis: tuple[float, ...]) -> str | None:
    if axis[0] <= value <= axis[-1]:
        return None
    return f"{what} {value:g} is outside the measured {axis[0]:g} to {axis[-1]:g}"
