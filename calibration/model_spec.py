"""A decoder-only text model: its sizes, and what follows from them."""

from dataclasses import dataclass

from calibration.dtypes import DTYPE_BYTES
from calibration.errors import CalibrationError
from calibration.experts import Experts
from calibration.quantization import Quantization


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Sizes of a Llama-shaped model (llama, mistral, qwen2, qwen3), with Hugging Face's names.

    Each layer is: norm, QKV projection, attention, output projection, norm, gate and up
    projection, SiLU times gate, down projection. With `experts` (gpt_oss, qwen3_moe) those three
    are a router's choice of experts; `intermediate_size` is then one expert's. In
    `num_window_layers` of the layers a token sees the last `window` tokens only.
    """

    name: str
    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    dtype: str = "bfloat16"
    tie_word_embeddings: bool = False
    has_qkv_bias: bool = False
    has_output_bias: bool = False
    has_mlp_bias: bool = False
    has_qk_norm: bool = False
    quantization: Quantization | None = None
    source: str = "given"
    experts: Experts | None = None
    window: int = 0
    num_window_layers: int = 0
    has_attention_sinks: bool = False

    @property
    def dtype_bytes(self) -> int:
        """Bytes of an activation, an embedding and an unquantised weight."""
        return DTYPE_BYTES[self.dtype]

    @property
    def weight_dtype(self) -> str:
        """Format of the linear layers, of experts if there are any: quantised, or the dtype."""
        if self.experts is not None:
            return self.experts.weight_dtype
        return self.quantization.weight_dtype if self.quantization else self.dtype

    @property
    def bytes_per_weight(self) -> float:
        """Bytes of one weight of a linear layer, with its share of scales."""
        return self.quantization.bytes_per_weight if self.quantization else self.dtype_bytes

    @property
    def query_size(self) -> int:
        """Width of all query heads."""
        return self.num_attention_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key heads (values have the same)."""
        return self.num_key_value_heads * self.head_dim

    @property
    def num_parameters(self) -> int:
        """Parameters of the checkpoint, exactly: tied embeddings count once."""
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        layer = self._layer_linear_parameters + self._layer_other_parameters
        return embeddings + self.num_hidden_layers * layer + self.hidden_size

    @property
    def _layer_linear_parameters(self) -> int:
        attention = self.hidden_size * (2 * self.query_size + 2 * self.kv_size)
        if self.experts is not None:
            return attention + self.experts.linear_parameters(self.hidden_size)
        return attention + 3 * self.hidden_size * self.intermediate_size

    @property
    def _layer_other_parameters(self) -> int:
        norms = 2 * self.hidden_size + (2 * self.head_dim if self.has_qk_norm else 0)
        qkv_bias = (self.query_size + 2 * self.kv_size) if self.has_qkv_bias else 0
        output_bias = self.hidden_size if self.has_output_bias else 0
        mlp_bias = (2 * self.intermediate_size + self.hidden_size) if self.has_mlp_bias else 0
        sinks = self.num_attention_heads if self.has_attention_sinks else 0
        router = self.experts.other_parameters(self.hidden_size) if self.experts else 0
        return norms + qkv_bias + output_bias + mlp_bias + sinks + router

    def check_tensor_parallel(
        self, tensor_parallel_size: int, *, expert_parallel: bool = False
    ) -> None:
        """Check that the model can be split over `tensor_parallel_size` GPUs, as vLLM splits it.

        Raises:
            CalibrationError: heads, KV heads or the MLP don't divide, or a dense model is to have
                its experts spread over the GPUs.
        """
        if expert_parallel and self.experts is None:
            raise CalibrationError(
                f"enable_expert_parallel is for mixtures of experts; {self.name} has none"
            )
        problem = tensor_parallel_problem(self, tensor_parallel_size)
        if problem:
            raise CalibrationError(problem)

    def kv_heads_per_rank(self, tensor_parallel_size: int) -> int:
        """Return the KV heads that one GPU holds: split, or copied once GPUs outnumber them."""
        return max(1, self.num_key_value_heads // tensor_parallel_size)

    def weight_bytes_per_rank(self, tensor_parallel_size: int = 1) -> int:
        """Return the bytes that weights take on each GPU once loaded.

        Linear layers (quantised or not) and both embeddings are split, KV heads copied where
        GPUs outnumber them, norms and biases copied. The rotary table (a cosine and a sine of
        half a head for each position) is counted: vLLM's "model weights take 14.99 GiB" for
        Llama-3.1-8B is 14.958 GiB of weights and 32 MiB of it.
        """
        tp = tensor_parallel_size
        kv = self.kv_heads_per_rank(tp) * self.head_dim
        attention = self.hidden_size * (2 * self.query_size / tp + 2 * kv)
        if self.experts is None:
            mlp_bytes = 3 * self.hidden_size * self.intermediate_size * self.bytes_per_weight
        else:
            mlp_bytes = self.experts.loaded_bytes(self.hidden_size)
        layer_bytes = attention * self.bytes_per_weight + mlp_bytes / tp
        linear = self.num_hidden_layers * layer_bytes
        num_embeddings = 1 if self.tie_word_embeddings else 2
        embeddings = num_embeddings * self.vocab_size * self.hidden_size / tp
        other = self.num_hidden_layers * self._layer_other_parameters + self.hidden_size
        rotary = self.max_position_embeddings * self.head_dim
        return round(linear + (embeddings + other + rotary) * self.dtype_bytes)


def tensor_parallel_problem(model: ModelSpec, tensor_parallel_size: int) -> str | None:
    """Return why the model can't be split over that many GPUs, None if it can."""
    tp = tensor_parallel_size
    if isinstance(tp, bool) or not isinstance(tp, int) or tp < 1:
        return f"tensor_parallel_size is {tp!r}; it must be a whole number of 1 or more"
    kv_heads = model.num_key_value_heads
    sizes = {
        "num_attention_heads": model.num_attention_heads % tp,
        "intermediate_size": model.intermediate_size % tp,
        "num_key_value_heads": kv_heads % tp if kv_heads >= tp else tp % kv_heads,
    }
    for field, remainder in sizes.items():
        if remainder:
            value = getattr(model, field)
            return f"tensor_parallel_size {tp} does not divide {field} {value} of {model.name}"
    return None
