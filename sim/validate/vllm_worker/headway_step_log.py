"""vLLM's scheduler with a log: a line of JSON for every step of the engine that it decides.

The engine loads `make_scheduler` by name, in the engine's own process. Times are seconds of the
monotonic clock, which all processes of the machine share.
"""

from __future__ import annotations

import importlib
import json
import os
import time
from collections import deque
from typing import Any

_LOG_VARIABLE = "HEADWAY_STEP_LOG"
_now_s = time.perf_counter


def make_scheduler(*args: Any, **options: Any) -> Any:
    """Return vLLM's own scheduler, logging to the file that the environment names."""
    module = importlib.import_module("vllm.v1.core.sched.scheduler")
    scheduler = module.Scheduler(*args, **options)
    StepLog(scheduler, os.environ[_LOG_VARIABLE])
    # The worker, in a process of its own, has the last core; the engine keeps off it.
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:-1] or cores)
    return scheduler


class StepLog:
    """Wraps a scheduler's methods, and writes a line when a step is processed."""

    def __init__(self, scheduler: Any, path: str) -> None:
        self._scheduler = scheduler
        # One write a line: another process reads the file while the engine runs.
        self._file = open(path, "a", buffering=1, encoding="utf-8")  # noqa: PTH123, SIM115
        self._schedule, self._update = scheduler.schedule, scheduler.update_from_output
        self._received: deque[tuple[str, float]] = deque()  # filled by another thread
        self._row: dict[str, Any] = {}
        scheduler.schedule = self.schedule
        scheduler.update_from_output = self.update_from_output
        self._watch_arrivals()

    def schedule(self, *args: Any, **options: Any) -> Any:
        """Decide, and note what was decided."""
        begin_s = _now_s()
        output = self._schedule(*args, **options)
        self._row = {
            "schedule_s": begin_s,
            "pieces": self._pieces(output),
            "preempted": len(output.preempted_req_ids or ()),
            "device_start_s": _now_s(),
        }
        return output

    def update_from_output(self, output: Any, results: Any) -> Any:
        """Process results, and write the step down."""
        row = self._row
        row["device_end_s"] = _now_s()
        outputs = self._update(output, results)
        if row["pieces"]:
            row["unfinished"] = len(self._scheduler.requests)
            received = self._received
            row["received"] = dict(received.popleft() for _ in range(len(received)))
            row["update_end_s"] = _now_s()
            self._file.write(json.dumps(row) + "\n")
        return outputs

    def _pieces(self, output: Any) -> list[tuple[int, int, int]]:
        """New tokens, tokens computed before, and 1 if a token comes out, of each request."""
        computed = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        computed.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        requests = self._scheduler.requests
        return [
            (num_new, computed[name], int(not requests[name].is_prefill_chunk))
            for name, num_new in output.num_scheduled_tokens.items()
        ]

    def _watch_arrivals(self) -> None:
        """Note when a request reaches the engine's process: between steps it may wait there."""
        core = importlib.import_module("vllm.v1.engine.core").EngineCore
        take_in = core.preprocess_add_request

        def receive(engine: Any, request: Any) -> Any:
            self._received.append((_client_id(request.request_id), _now_s()))
            return take_in(engine, request)

        core.preprocess_add_request = receive


def _client_id(request_id: str) -> str:
    """The id that the client gave: vLLM appends a random part to it."""
    return request_id.partition("-")[0]
