"""Serves requests on a real vLLM engine in real time: one workload a line in, its times a line out.

The engine runs in a process of its own, as behind vLLM's API server; this process is its client.
The first line in says how to build it, the first line out how it was built.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO

_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}
_LOG_VARIABLE = "HEADWAY_STEP_LOG"  # as in headway_step_log.py
_FIRST_TOKEN_ID = 3
_START_DELAY_S = 0.05
_now_s = time.perf_counter


def main() -> None:
    """Build the engine, answer until the input ends."""
    answers = _take_stdout()
    options = json.loads(sys.stdin.readline())
    folder = Path(options["folder"])
    log = folder / "steps.jsonl"
    log.touch()
    os.environ.update(_ENVIRONMENT)
    os.environ[_LOG_VARIABLE] = str(log)
    cores = sorted(os.sched_getaffinity(0))
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = str(cores[-1])
    try:
        asyncio.run(_answer_all(options, log, cores, answers))
    except Exception as error:  # whatever vLLM raises is the answer
        _answer(answers, {"error": f"{type(error).__name__}: {error}"})


async def _answer_all(
    options: dict[str, Any], log: Path, cores: list[int], answers: TextIO
) -> None:
    vllm = importlib.import_module("vllm")
    engine = _make_engine(vllm, options)
    # The engine was bound to the last core; its client keeps off it.
    os.sched_setaffinity(0, cores[:-1] or cores)
    client = Client(vllm, engine, options["vocab_size"])
    _answer(answers, {"vllm": vllm.__version__, **_settings(engine, cores)})
    with log.open(encoding="utf-8") as steps:
        for line in sys.stdin:
            requests = await client.serve(json.loads(line)["requests"])
            rows = [json.loads(row) for row in steps]
            _answer(answers, {"requests": requests, "steps": rows})
    engine.shutdown()


def _make_engine(vllm: Any, options: dict[str, Any]) -> Any:
    arguments = vllm.AsyncEngineArgs(
        model=options["folder"],
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="float32",
        scheduler_cls="headway_step_log.make_scheduler",
        disable_log_stats=True,
        **options["engine"],
    )
    engine_class = importlib.import_module("vllm.v1.engine.async_llm").AsyncLLM
    return engine_class.from_engine_args(arguments)


def _settings(engine: Any, cores: list[int]) -> dict[str, Any]:
    """What the engine runs with, in vLLM's names: some of it is vLLM's own choice."""
    scheduler, cache = engine.vllm_config.scheduler_config, engine.vllm_config.cache_config
    names = (
        "max_num_seqs",
        "max_num_batched_tokens",
        "policy",
        "enable_chunked_prefill",
        "long_prefill_token_threshold",
        "scheduler_reserve_full_isl",
        "watermark",
        "async_scheduling",
    )
    return {
        "scheduler": {
            **{name: getattr(scheduler, name) for name in names},
            "max_model_len": engine.vllm_config.model_config.max_model_len,
        },
        "cache": {
            "num_gpu_blocks": cache.num_gpu_blocks_override,
            "block_size": cache.block_size,
            "enable_prefix_caching": cache.enable_prefix_caching,
        },
        "torch": str(importlib.import_module("torch").__version__),
        "cores": len(cores),
    }


class Client:
    """Sends requests at their times and notes when tokens come back."""

    def __init__(self, vllm: Any, engine: Any, vocab_size: int) -> None:
        self._vllm, self._engine = vllm, engine
        self._num_ids = vocab_size - _FIRST_TOKEN_ID
        self._serial = 0
        self._delta = importlib.import_module("vllm.sampling_params").RequestOutputKind.DELTA

    async def serve(self, requests: list[tuple[float, int, int]]) -> list[dict[str, Any]]:
        """Send (arrival_s, prompt tokens, output tokens) each; `arrival_s` counts from now."""
        prompts = [self._prompt(num_prompt) for _, num_prompt, _ in requests]
        start_s = _now_s() + _START_DELAY_S
        sent = [
            self._send(start_s + arrival_s, prompt, num_output)
            for (arrival_s, _, num_output), prompt in zip(requests, prompts, strict=True)
        ]
        return list(await asyncio.gather(*sent))

    async def _send(
        self, arrival_s: float, prompt: tuple[str, list[int]], num_output: int
    ) -> dict[str, Any]:
        name, token_ids = prompt
        sampling = self._vllm.SamplingParams(
            temperature=0.0,
            max_tokens=num_output,
            ignore_eos=True,
            detokenize=False,
            output_kind=self._delta,
        )
        await asyncio.sleep(arrival_s - _now_s())
        times: dict[str, Any] = {"id": name, "arrival_s": arrival_s, "sent_s": _now_s()}
        times["num_output_tokens"] = 0
        inputs = {"prompt_token_ids": token_ids}
        async for output in self._engine.generate(inputs, sampling, name):
            now_s = _now_s()
            times.setdefault("first_token_s", now_s)
            times["last_token_s"] = now_s
            times["num_output_tokens"] += len(output.outputs[0].token_ids)
        return times

    def _prompt(self, num_tokens: int) -> tuple[str, list[int]]:
        """A name and a prompt that shares no block with any other: nothing is to hit the cache."""
        self._serial += 1
        high, low = divmod(self._serial, self._num_ids)
        ids = [low, high, *((low + 17 * i) % self._num_ids for i in range(2, num_tokens))]
        return str(self._serial), [_FIRST_TOKEN_ID + token for token in ids[:num_tokens]]


def _take_stdout() -> TextIO:
    """Keep stdout for answers; what vLLM prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _answer(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
