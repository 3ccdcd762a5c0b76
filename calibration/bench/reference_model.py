"""A small Llama-shaped model for machines without a GPU."""

from calibration.load_model import load_model
from calibration.model_spec import ModelSpec

REFERENCE_NAME = "headway-reference-16m"

REFERENCE_MODEL = ModelSpec(
    name=REFERENCE_NAME,
    num_hidden_layers=4,
    hidden_size=512,
    num_attention_heads=8,
    num_key_value_heads=4,
    head_dim=64,
    intermediate_size=1408,
    vocab_size=4096,
    max_position_embeddings=4096,
    dtype="float32",
    source="built for the executor: more weights than a CPU's caches hold, steps of a few ms",
)


def load_bench_model(name_or_path: str) -> ModelSpec:
    """Return the reference model by its name, or what `load_model` finds.

    Raises:
        CalibrationError: unknown name, or a config that can't be used.
    """
    return REFERENCE_MODEL if name_or_path == REFERENCE_NAME else load_model(name_or_path)
