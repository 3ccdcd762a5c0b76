"""How the measurements were made: load generator, engine settings, host time.

Sources rarely say. What is inferred is inferred once for a whole source from how its figures move
with concurrency and lengths, and written here; it is never set for a single row.
"""

from dataclasses import dataclass

from sim.config.resolved import ClosedLoad
from sim.engine import HostOverhead

HOST_OVERHEADS: dict[str, HostOverhead] = {
    "0.12": HostOverhead(1.0e-3, 3.0e-5),
    "0.19": HostOverhead(1.3e-3),
}
"""CPU time between two steps, by vLLM release: the one constant that kernels can't give.

It covers scheduling, input preparation, the launch of the graph, sampling's way back and the
detokeniser's queue. Both are for synchronous scheduling: 0.12 has no other by default, and the
recorded run of 0.19 behaves like it (with the same time hidden behind the device, TPOT of the 8B
model would be 4 % too low).
"""


@dataclass(frozen=True, slots=True)
class Harness:
    """A closed loop of clients and the engine it talks to.

    Attributes:
        rounds: requests of each client, one after another; all start at once, all are counted.
        client_delay_s: from a completion to the next arrival: the client's own work.
        client_delay_per_prompt_token_s: the same, for each token of the next prompt.
        lengths_from: prompts and outputs are uniform between this share of the nominal length
            and the nominal length; 1: exact.
        batched_tokens: max_num_batched_tokens; None: prompt length plus concurrency.
        max_num_seqs: engine setting.
        gpu_memory_utilization: engine setting.
        async_scheduling: engine setting.
        kv_cache_dtype: engine setting.
        host: CPU time of a step.
    """

    rounds: int = 10
    client_delay_s: float = 8e-3
    client_delay_per_prompt_token_s: float = 3e-6
    lengths_from: float = 1.0
    batched_tokens: int | None = None
    max_num_seqs: int = 1024
    gpu_memory_utilization: float = 0.9
    async_scheduling: bool = False
    kv_cache_dtype: str = "auto"
    host: HostOverhead = HOST_OVERHEADS["0.12"]

    def max_num_batched_tokens(self, num_prompt_tokens: int, concurrency: int) -> int:
        """The token budget of a step for rows of this prompt length and concurrency."""
        return self.batched_tokens or num_prompt_tokens + concurrency

    def load(self, concurrency: int) -> ClosedLoad:
        """The clients."""
        return ClosedLoad(
            concurrency,
            self.rounds,
            client_delay_s=self.client_delay_s,
            client_delay_per_prompt_token_s=self.client_delay_per_prompt_token_s,
        )


HARNESSES: dict[str, Harness] = {
    "gap-analysis": Harness(),
    "inferencex-70b-b200": Harness(
        lengths_from=0.8,
        batched_tokens=8192,
        max_num_seqs=512,
        async_scheduling=True,
        kv_cache_dtype="fp8",
    ),
    "inferencex-gpt-oss-h200": Harness(
        lengths_from=0.8, batched_tokens=8192, async_scheduling=True
    ),
}
"""`gap-analysis`: NVIDIA's runs of Qwen3-32B on H100 with vLLM 0.12. It is not documented: rounds,
batched tokens and the clients' delay are inferred. The delay must lie above one decode step and
below two (10.3 ms each) for TTFT at tensor parallel 4 to be what it is at 1,024 and at 4,096
prompt tokens: 8 ms and 3 us a token does.

`inferencex-70b-b200`: from the public benchmark's own script for Llama-3.1-70B fp8 on B200 (its
revision bb4c7f93); lengths are uniform from 0.8 to 1.0 of the nominal ones. The script also
fuses all-reduce with the norm, as the profiles of B200 do, and runs prefills without CUDA graphs,
which is not modelled.

`inferencex-gpt-oss-h200`: from its script for gpt-oss-120b on H200 (revision 16cd9556), which asks
for Marlin's kernels of the experts where the tables have Triton's.
"""
