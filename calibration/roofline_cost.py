"""Step times from peak rates alone: what no engine can beat."""

from typing import Any

import numpy as np

from calibration import roofline_work
from calibration.checks import require_seconds
from calibration.cost_model import CostProvenance, FloatArray
from calibration.errors import CalibrationError
from calibration.gpu_spec import GpuSpec
from calibration.model_spec import ModelSpec
from calibration.step_shape import StepShape, decode_shape

_VECTOR_FROM = 4  # below it, the scalar path is quicker than numpy's fixed cost


class RooflineCost:
    """The sum over the operations of a step of max(arithmetic / peak, bytes / bandwidth).

    time = sum over QKV, output, gate-up, down: max(T * flops, weights + T * rows)
         + max(R * flops, weights + R * rows)                    lm_head, R = max(num_logits, 1)
         + max(pairs * flops, KV entries * bytes + T * bytes)    attention, one launch a layer
         + T * (elementwise + all-reduce) + R * sampler + overhead_s

    with T = num_tokens; a decode sees its context, so it adds that many pairs and KV entries; a
    chunk of n new tokens after c computed ones adds n * (c + (n + 1) / 2) pairs (causal) and
    c + n KV entries. lm_head runs at least one row: vLLM also computes the logits of unfinished
    prompts and drops them. Coefficients: `roofline_work`.

    Real kernels reach some 50 to 90 % of either peak, so real steps are slower; every result
    says so.

    Args:
        model: what runs.
        gpu: on what; one GPU of the tensor-parallel group.
        tensor_parallel_size: GPUs that share each layer.
        kv_cache_dtype: vLLM's name; auto is the model's dtype.
        overhead_s: fixed time of each step (kernel launches, host work that is not hidden).

    Raises:
        CalibrationError: the sizes don't divide, or an argument is out of range.
    """

    def __init__(
        self,
        model: ModelSpec,
        gpu: GpuSpec,
        tensor_parallel_size: int = 1,
        *,
        kv_cache_dtype: str = "auto",
        overhead_s: float = 0.0,
    ) -> None:
        model.check_tensor_parallel(tensor_parallel_size)
        if model.experts is not None:
            raise CalibrationError(
                f"the roofline is for dense models; {model.name} has experts, whose traffic hangs"
                " on the router: give a profile (`headway calibrate --from aic` makes one)"
            )
        tp = tensor_parallel_size
        self.model = model
        self.gpu = gpu
        self.tensor_parallel_size = tp
        self.kv_cache_dtype = kv_cache_dtype
        self.overhead_s = require_seconds("overhead_s", overhead_s)
        qkv, out, up, down = roofline_work.layer_gemms(model, gpu, tp)
        self._qkv = (qkv.flops_s, qkv.weights_s, qkv.rows_s)
        self._out = (out.flops_s, out.weights_s, out.rows_s)
        self._up = (up.flops_s, up.weights_s, up.rows_s)
        self._down = (down.flops_s, down.weights_s, down.rows_s)
        head = roofline_work.lm_head_gemm(model, gpu, tp)
        self._head = (head.flops_s, head.weights_s, head.rows_s)
        attention = roofline_work.attention_line(model, gpu, kv_cache_dtype, tp)
        self._attention = (attention.pair_s, attention.kv_s, attention.token_s)
        self._token_s = roofline_work.elementwise_s_per_token(
            model, gpu, tp
        ) + roofline_work.all_reduce_s_per_token(model, gpu, tp)
        self._sampler_s = roofline_work.sampler_s_per_logit_row(model, gpu)

    @property
    def provenance(self) -> CostProvenance:
        """Where the times come from."""
        details = {
            "model": self.model.name,
            "weight_dtype": self.model.weight_dtype,
            "gpu": self.gpu.name,
            "gpu_source": self.gpu.source,
            "tensor_parallel_size": self.tensor_parallel_size,
            "kv_cache_dtype": self.kv_cache_dtype,
            "overhead_s": self.overhead_s,
        }
        return CostProvenance(
            "roofline",
            "roofline: data-sheet peaks, real steps take longer; not calibrated",
            False,
            details,
        )

    def step_time_s(self, shape: StepShape) -> float:
        """Return the least time in which the GPU could do the step."""
        num_tokens, num_logits, _, context, chunks, _ = shape
        pairs: float = context
        for new, computed in chunks:
            pairs += new * (computed + (new + 1) * 0.5)
            context += new + computed
        flops_s, kv_s, token_s = self._attention
        arithmetic_s = pairs * flops_s
        traffic_s = num_tokens * token_s + context * kv_s
        attention_s = arithmetic_s if arithmetic_s > traffic_s else traffic_s
        return self._without_attention_s(num_tokens, num_logits) + attention_s

    def decode_times_s(
        self,
        num_decodes: int,
        decode_context_tokens: int,
        num_steps: int,
        decode_max_context_tokens: int = 0,
    ) -> FloatArray:
        """Return the times of decode steps in a row; only attention changes between them."""
        if num_steps < _VECTOR_FROM:
            return np.array(
                [
                    self.step_time_s(
                        decode_shape(num_decodes, decode_context_tokens + i * num_decodes)
                    )
                    for i in range(num_steps)
                ],
                dtype=np.float64,
            )
        steps = np.arange(num_steps, dtype=np.int64)
        contexts = (decode_context_tokens + num_decodes * steps).astype(np.float64)
        flops_s, kv_s, token_s = self._attention
        traffic_s = num_decodes * token_s + contexts * kv_s
        times_s: FloatArray = np.maximum(contexts * flops_s, traffic_s)
        times_s += self._without_attention_s(num_decodes, num_decodes)
        return times_s

    def compiled_form(self) -> dict[str, Any]:
        """Return the coefficients; a triple is flops_s, weights_s, rows_s (or attention's)."""
        return {
            "kind": "roofline",
            "qkv": self._qkv,
            "out": self._out,
            "up": self._up,
            "down": self._down,
            "head": self._head,
            "attention": self._attention,
            "token_s": self._token_s,
            "sampler_s": self._sampler_s,
            "overhead_s": self.overhead_s,
        }

    def dense_time_s(self, num_tokens: int) -> float:
        """Return the part that is set by the tokens alone: layers without attention and logits."""
        total_s = 0.0
        for flops_s, weights_s, rows_s in (self._qkv, self._out, self._up, self._down):
            total_s += max(num_tokens * flops_s, weights_s + num_tokens * rows_s)
        return total_s + num_tokens * self._token_s

    def _without_attention_s(self, num_tokens: int, num_logits: int) -> float:
        """Return the time of everything but attention; written out, as it runs every step."""
        rows = num_logits if num_logits > 0 else 1
        flops_s, weights_s, rows_s = self._qkv
        arithmetic_s = num_tokens * flops_s
        traffic_s = weights_s + num_tokens * rows_s
        total_s = arithmetic_s if arithmetic_s > traffic_s else traffic_s
        flops_s, weights_s, rows_s = self._out
        arithmetic_s = num_tokens * flops_s
        traffic_s = weights_s + num_tokens * rows_s
        total_s += arithmetic_s if arithmetic_s > traffic_s else traffic_s
        flops_s, weights_s, rows_s = self._up
        arithmetic_s = num_tokens * flops_s
        traffic_s = weights_s + num_tokens * rows_s
        total_s += arithmetic_s if arithmetic_s > traffic_s else traffic_s
        flops_s, weights_s, rows_s = self._down
        arithmetic_s = num_tokens * flops_s
        traffic_s = weights_s + num_tokens * rows_s
        total_s += arithmetic_s if arithmetic_s > traffic_s else traffic_s
        flops_s, weights_s, rows_s = self._head
        arithmetic_s = rows * flops_s
        traffic_s = weights_s + rows * rows_s
        total_s += arithmetic_s if arithmetic_s > traffic_s else traffic_s
        return total_s + num_tokens * self._token_s + rows * self._sampler_s + self.overhead_s
