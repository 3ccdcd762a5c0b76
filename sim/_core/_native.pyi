from collections.abc import Callable
from typing import Any

Chunk = tuple[int, tuple[bytes, ...]]
Ending = tuple[int, str, int, int, float, float, float]

class CoreReplica:
    num_running: int
    num_waiting: int
    num_requests: int
    num_known_tokens: int
    num_ended: int
    num_steps: int
    num_free_blocks: int
    next_s: float
    def __new__(
        cls,
        *,
        max_num_seqs: int,
        token_budget: int,
        max_num_batched_tokens: int,
        max_model_len: int,
        long_prefill_token_threshold: int,
        is_priority: bool,
        enable_chunked_prefill: bool,
        scheduler_reserve_full_isl: bool,
        async_scheduling: bool,
        num_usable_blocks: int,
        block_size: int,
        watermark_blocks: int,
        enable_prefix_caching: bool,
        host_per_step_s: float,
        host_per_request_s: float,
        stops_at_ends: bool,
        cost: Any,
        cost_form: dict[str, Any] | None,
        shape_type: Any,
        chunks_in_python: bool,
        max_preempted_in_vain: int,
        on_endless: Callable[[float, float], None],
    ) -> CoreReplica: ...
    def submit(
        self,
        now_s: float,
        id: int,
        arrival_s: float,
        priority: int,
        num_prompt_tokens: int,
        max_tokens: int,
        prompt: Any,
        stop_at: int = 0,
        /,
    ) -> None: ...
    def feed(
        self,
        ids: Any,
        arrivals_s: Any,
        priorities: Any,
        prompt_tokens: Any,
        output_tokens: Any,
        prompts: list[Any] | None,
        /,
    ) -> None: ...
    def advance(self, until_s: float, /) -> bool: ...
    def finish(self) -> int: ...
    def take_steps(self) -> Chunk | None: ...
    def take_requests(self) -> Chunk | None: ...
    def take_gaps(self) -> Chunk | None: ...
    def unfinished(self) -> list[tuple[int, str, int]]: ...
    def probe_schedule(self) -> tuple[list[tuple[int, int, int, bool, bool]], list[int], int]: ...
    def probe_process(self) -> tuple[list[int], list[tuple[int, str]]]: ...
    def probe_abort(self, id: int, /) -> bool: ...
    def probe_state(self) -> tuple[list[int], list[int], list[int], list[int], int, bool]: ...
    def probe_check(self) -> bool: ...
    def probe_cost(self, shape: Any, /) -> float: ...

def advance_all(
    cores: tuple[CoreReplica, ...], until_s: float, /
) -> tuple[int, float, tuple[Ending, ...]] | None: ...
