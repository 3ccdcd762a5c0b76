"""How many KV blocks fit on a GPU beside the weights: vLLM's `num_gpu_blocks`, estimated.

vLLM measures its own working memory at start-up; this module estimates it, so a number read from
a vLLM log should be preferred where there is one. How far off the estimate is:

- Llama-3.1-8B bf16 on RTX 4090, vLLM 0.19, utilisation 0.9, 2048 tokens and 256 requests a batch:
  2538 blocks, the engine had 2588 (-1.9 %).
- Llama-3.1-8B bf16 on H100 80 GB, utilisation 0.9, 8192 and 1024: 26,303 blocks; from the working
  memory measured there (4.76 + 0.14 GiB) follow 26,303, from a peer's constants 26,312.
- gpt-oss-120b on H100 80 GB, vLLM 0.10.1, utilisation 0.9, 8192 and 1024: weights 64.57 GiB and
  working memory 7.55; the engine had 65.97 and 7.44 (vllm issue 23278), and with 0.14.1 and another
  kernel 64.38 of weights (33155). What is left for the cache is below 1 GiB, so it is not to be
  trusted there.
- Qwen3-32B bf16 on H100 80 GB, tensor parallel 2, vLLM 0.12, utilisation 0.9: 283 k tokens; about
  285 k fit the end-to-end times best (-0.6 %).

Recent vLLM releases also take off an estimate of their CUDA graphs (some hundred MiB, by model
and capture sizes); give it as `cuda_graph_bytes` if the log shows it.
"""

from dataclasses import dataclass

from calibration.checks import require_count
from calibration.dtypes import kv_dtype_bytes
from calibration.errors import CalibrationError
from calibration.gpu_spec import GIB, GpuSpec
from calibration.model_spec import ModelSpec, tensor_parallel_problem

SAMPLER_BYTES_PER_LOGIT = 38.4
"""Peak working memory of vLLM's profiling run for each entry of its (requests x vocabulary) logits.

The dummy sampler run holds the logits in 16 and in 32 bits, sorted copies with 64-bit indices,
probabilities and their running sum. Four published peaks on an H100 with 1024 requests a batch
(Qwen3-0.6B 5.56 GiB, Llama-3.1-8B 4.76, Llama-3.1-70B with tensor parallel 2 4.84, Qwen3-32B 5.64;
llm-d capacity planner, empirical vLLM memory results) less the hidden states give 38.3, 38.4, 38.5
and 38.4 bytes.
"""

NON_TORCH_BYTES = round(0.14 * GIB)
"""Memory outside torch's allocator on one GPU; same source, 0.13 to 0.14 GiB."""

NON_TORCH_BYTES_TENSOR_PARALLEL = round(0.55 * GIB)
"""The same with NCCL and all-reduce buffers; same source, 0.55 GiB at tensor parallel 2."""

_TENSOR_PARALLEL_TRIED = (1, 2, 4, 8, 16, 32)
_MIN_BLOCKS = 2  # the null block and one to use


@dataclass(frozen=True, slots=True)
class KvCapacity:
    """Size of the KV cache and how it was derived.

    Attributes:
        num_gpu_blocks: blocks on each GPU, the null block included, as in a vLLM log.
        origin: one sentence for the table and the run folder.
        block_bytes: bytes of one block on each GPU.
        weight_bytes: weights on each GPU.
        reserve_bytes: working memory on each GPU.
    """

    num_gpu_blocks: int
    origin: str
    block_bytes: int = 0
    weight_bytes: int = 0
    reserve_bytes: int = 0


def kv_cache_bytes_per_token(
    model: ModelSpec, kv_cache_dtype: str = "auto", tensor_parallel_size: int = 1
) -> int:
    """Return the bytes of one token's keys and values on each GPU.

    2 (key, value) * layers * KV heads of this GPU * head_dim * bytes. KV heads, not attention
    heads; where there are more GPUs than KV heads each GPU holds a copy of one.

    Raises:
        CalibrationError: unknown dtype, or a tensor parallel size that does not divide.
    """
    model.check_tensor_parallel(tensor_parallel_size)
    heads = model.kv_heads_per_rank(tensor_parallel_size)
    width = kv_dtype_bytes(kv_cache_dtype, model.dtype)
    return 2 * model.num_hidden_layers * heads * model.head_dim * width


def working_memory_bytes(
    model: ModelSpec,
    *,
    tensor_parallel_size: int,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    cuda_graph_bytes: int = 0,
) -> int:
    """Return an estimate of what vLLM sets aside on each GPU beside weights and KV cache.

    The peak of its profiling run (the larger of two phases), plus memory outside torch:

    - sampling: `max_num_seqs` rows of the whole vocabulary at `SAMPLER_BYTES_PER_LOGIT`, while
      the hidden states of the batch are alive;
    - MLP of one layer: residual and input, gate and up, and their product, for the whole batch.
    """
    width = model.dtype_bytes
    hidden = max_num_batched_tokens * model.hidden_size * width
    mlp = 3 * max_num_batched_tokens * model.intermediate_size * width // tensor_parallel_size
    sampling = hidden + SAMPLER_BYTES_PER_LOGIT * max_num_seqs * model.vocab_size
    forward = 2 * hidden + mlp
    is_parallel = tensor_parallel_size > 1
    non_torch = NON_TORCH_BYTES_TENSOR_PARALLEL if is_parallel else NON_TORCH_BYTES
    return round(max(sampling, forward)) + non_torch + cuda_graph_bytes


@dataclass(frozen=True, slots=True)
class _Budget:
    """One question of capacity, asked at one or several tensor parallel sizes."""

    model: ModelSpec
    gpu: GpuSpec
    gpu_memory_utilization: float
    kv_cache_dtype: str
    block_size: int
    max_num_batched_tokens: int
    max_num_seqs: int
    cuda_graph_bytes: int

    def given_bytes(self) -> int:
        """Bytes of each GPU that the engine may use."""
        return int(self.gpu.usable_memory_bytes * self.gpu_memory_utilization)

    def capacity(self, tp: int) -> KvCapacity:
        """Return the cache at a tensor parallel size; its blocks are below 1 if nothing fits."""
        bytes_per_token = kv_cache_bytes_per_token(self.model, self.kv_cache_dtype, tp)
        weights = self.model.weight_bytes_per_rank(tp)
        reserve = working_memory_bytes(
            self.model,
            tensor_parallel_size=tp,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_num_seqs=self.max_num_seqs,
            cuda_graph_bytes=self.cuda_graph_bytes,
        )
        block_bytes = self.block_size * bytes_per_token
        num_blocks = (self.given_bytes() - weights - reserve) // block_bytes
        origin = (
            f"estimated: {self.gpu_memory_utilization:g} of"
            f" {_gib(self.gpu.usable_memory_bytes)} on {self.gpu.name}"
            f" - {_gib(weights)} weights ({self.model.name}, {self.model.weight_dtype},"
            f" tensor parallel {tp}) - {_gib(reserve)} working memory,"
            f" in blocks of {block_bytes / 2**20:g} MiB"
        )
        return KvCapacity(num_blocks, origin, block_bytes, weights, reserve)

    def advice(self) -> str:
        """Return the smallest tensor parallel size at which the model fits, and what it leaves."""
        for tp in _TENSOR_PARALLEL_TRIED:
            if tensor_parallel_problem(self.model, tp) is not None:
                continue
            num_blocks = self.capacity(tp).num_gpu_blocks
            if num_blocks >= _MIN_BLOCKS:
                tokens = (num_blocks - 1) * self.block_size
                return (
                    f"the smallest tensor_parallel_size that fits is {tp}"
                    f" (KV cache of {tokens:,} tokens)"
                )
        return f"no tensor_parallel_size up to {_TENSOR_PARALLEL_TRIED[-1]} fits"

    def does_not_fit(self, tp: int) -> str:
        """Return the sentence for a model that does not fit."""
        capacity = self.capacity(tp)
        weights, reserve = capacity.weight_bytes, capacity.reserve_bytes
        needed = weights + reserve + _MIN_BLOCKS * capacity.block_bytes
        return (
            f"{self.model.name} does not fit {self.gpu.name}: each GPU needs at least"
            f" {needed:,} bytes ({_gib(weights)} weights in {self.model.weight_dtype} at"
            f" tensor_parallel_size {tp}, {_gib(reserve)} working memory and a KV block), but"
            f" gpu_memory_utilization {self.gpu_memory_utilization:g} gives"
            f" {self.given_bytes():,} bytes ({_gib(self.given_bytes())}); {self.advice()}"
        )


def compute_num_gpu_blocks(
    model: ModelSpec,
    gpu: GpuSpec,
    *,
    gpu_memory_utilization: float = 0.92,
    kv_cache_dtype: str = "auto",
    tensor_parallel_size: int = 1,
    block_size: int = 16,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    cuda_graph_bytes: int = 0,
) -> KvCapacity:
    """Return how many KV blocks fit on each GPU.

    (usable memory * utilisation - weights - working memory) // bytes of a block.

    Raises:
        CalibrationError: a setting is out of range, the tensor parallel size does not divide the
            model, or the model does not fit (both byte figures and the smallest size that fits).
    """
    _check_settings(gpu_memory_utilization, block_size, max_num_batched_tokens, max_num_seqs)
    model.check_tensor_parallel(tensor_parallel_size)
    budget = _Budget(
        model,
        gpu,
        gpu_memory_utilization,
        kv_cache_dtype,
        block_size,
        max_num_batched_tokens,
        max_num_seqs,
        cuda_graph_bytes,
    )
    capacity = budget.capacity(tensor_parallel_size)
    if capacity.num_gpu_blocks < _MIN_BLOCKS:
        raise CalibrationError(budget.does_not_fit(tensor_parallel_size))
    return capacity


def _check_settings(
    gpu_memory_utilization: float, block_size: int, max_num_batched_tokens: int, max_num_seqs: int
) -> None:
    if not 0 < gpu_memory_utilization <= 1:
        raise CalibrationError(
            f"gpu_memory_utilization is {gpu_memory_utilization}; it must be above 0 and at most 1"
        )
    require_count("block_size", block_size)
    require_count("max_num_batched_tokens", max_num_batched_tokens)
    require_count("max_num_seqs", max_num_seqs)


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.2f} GiB"
