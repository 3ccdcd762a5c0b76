"""What a reader should know of the KV pool of a study, one sentence each."""

from calibration import ModelSpec
from sim.config.resolved import EngineConfig


def pool_warnings(engine: EngineConfig, model: ModelSpec, *, is_given: bool) -> tuple[str, ...]:
    """Say where the pool is not what vLLM would have; `is_given`: num_gpu_blocks is the user's."""
    return (*_small_pool(engine, model), *_windows(engine, model, is_given=is_given))


def _small_pool(engine: EngineConfig, model: ModelSpec) -> tuple[str, ...]:
    """vLLM would not start with a pool below one request of max_model_len; here it is allowed."""
    cache, max_model_len = engine.cache, engine.scheduler.max_model_len
    pool_tokens = cache.num_usable_blocks * cache.block_size
    if pool_tokens >= max_model_len:
        return ()
    would = "might" if model.num_window_layers else "would"
    return (
        f"the KV pool holds {pool_tokens} tokens, less than max_model_len {max_model_len}: vLLM "
        f"{would} refuse to start; here requests that can never fit are rejected at arrival",
    )


def _windows(engine: EngineConfig, model: ModelSpec, *, is_given: bool) -> tuple[str, ...]:
    """vLLM frees what lies behind a window; the blocks here are of all layers alike."""
    if not model.num_window_layers:
        return ()
    layers, full = model.num_hidden_layers, model.num_hidden_layers - model.num_window_layers
    if not is_given:
        more = f"{layers / full:.2g} times as many" if full else "many times as many"
        return (
            f"the KV pool is estimated as if all {layers} layers kept whole contexts; in vLLM "
            f"{model.num_window_layers} of them keep {model.window} tokens, so it has room for up "
            f"to {more}",
        )
    extra = -(-model.window // engine.cache.block_size) + 1
    return (
        f"num_gpu_blocks is taken as blocks of the {full} layers without a window; in vLLM each "
        f"request holds up to {extra} more of them for the {model.num_window_layers} layers with a "
        f"window of {model.window} tokens",
    )
