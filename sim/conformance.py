"""Replays recorded scheduler decisions on our scheduler and says where they differ.

A case is a workload and, step by step, what vLLM's own scheduler decided for it. The format is
described in `sim/scheduler/README.md`.
"""

from __future__ import annotations

import gzip
import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.errors import StudyError
from sim.scheduler.async_scheduler import create_scheduler
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.scheduler.output import EngineCoreOutput, SchedulerOutput
from sim.scheduler.request import Request
from sim.scheduler.scheduler import Scheduler

Row = dict[str, Any]
Case = dict[str, Any]

_DEFAULT_NUM_BLOCKS = 1000
# A request that outgrows the pool alone preempts itself for ever: nothing ends such a replay.
_MAX_ITERATIONS = 1_000_000
_MAX_ITERATIONS_WITHOUT_OUTPUT = 20_000


class ConformanceError(StudyError):
    """A case file, or a case in it, that cannot be replayed."""


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """What became of one case. `difference` is None if every step given is identical."""

    name: str
    num_steps: int
    compared: bool
    difference: str | None


@dataclass(frozen=True, slots=True)
class ConformanceReport:
    """Outcomes of all cases of a file, in its order."""

    outcomes: tuple[CaseOutcome, ...]

    @property
    def num_identical(self) -> int:
        """Cases whose steps were given and are all identical."""
        return sum(o.compared and o.difference is None for o in self.outcomes)

    @property
    def num_compared(self) -> int:
        """Cases whose steps were given."""
        return sum(o.compared for o in self.outcomes)

    @property
    def by_family(self) -> dict[str, tuple[int, int]]:
        """Family -> (identical, compared); the family is the name up to its first hyphen."""
        families: dict[str, tuple[int, int]] = {}
        for outcome in self.outcomes:
            if outcome.compared:
                family = outcome.name.split("-", 1)[0]
                identical, compared = families.get(family, (0, 0))
                families[family] = (identical + (outcome.difference is None), compared + 1)
        return families


def replay_file(path: Path, emit: Path | None = None) -> ConformanceReport:
    """Replay every case of a JSONL file (plain or .gz) and compare where steps are given.

    `emit` names a file (.gz compresses it) for the cases with our steps in place of theirs; it is
    written to a temporary name and renamed at the end. Raises `ConformanceError`.
    """
    outcomes: list[CaseOutcome] = []
    emitted: list[str] = []
    for case in read_cases(path):
        steps = replay_case(case)
        given = case.get("steps")
        difference = None if given is None else first_difference(given, steps)
        outcomes.append(CaseOutcome(case["name"], len(steps), given is not None, difference))
        if emit is not None:
            emitted.append(json.dumps({**case, "steps": steps}))
    if emit is not None:
        _write_lines(emit, emitted)
    return ConformanceReport(tuple(outcomes))


def read_cases(path: Path) -> Iterator[Case]:
    """The cases of a file, one JSON object a line. Raises `ConformanceError` naming the line."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _parse_case(path, number, line)
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise ConformanceError(f"{path}: cannot be read as JSON lines: {error}") from None


def _parse_case(path: Path, number: int, line: str) -> Case:
    try:
        case: Case = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConformanceError(f"{path}, line {number}: not JSON: {error}") from None
    for key, kind in (("name", str), ("config", dict), ("requests", list)):
        if not isinstance(case, dict) or not isinstance(case.get(key), kind):
            raise ConformanceError(
                f"{path}, line {number}: a case needs {key!r} as a {kind.__name__}"
            )
    return case


def replay_case(case: Case) -> list[Row]:
    """Our scheduler's steps for a case's workload. Raises `ConformanceError`."""
    try:
        return _Replay(case).run()
    except (KeyError, TypeError, ValueError) as error:
        raise ConformanceError(
            f"case {case['name']}: not a workload that can be replayed: "
            f"{type(error).__name__}: {error}"
        ) from error


def first_difference(theirs: Sequence[Row], ours: Sequence[Row]) -> str | None:
    """The first step and field in which two recordings differ; None if there is none."""
    for index in range(max(len(theirs), len(ours))):
        if index >= len(ours):
            return f"step {theirs[index]['step']}: given, but our replay had ended"
        if index >= len(theirs):
            return f"step {ours[index]['step']}: ours goes on after the last given step"
        difference = _row_difference(theirs[index], ours[index])
        if difference is not None:
            return f"step {theirs[index]['step']}: {difference}"
    return None


def _row_difference(theirs: Row, ours: Row) -> str | None:
    for field in (*theirs, *(field for field in ours if field not in theirs)):
        given, made = theirs.get(field), ours.get(field)
        same = given == made
        if same and field == "scheduled" and given is not None:
            same = list(given) == list(ours["scheduled"])
        if not same:
            return f"{field}: given {json.dumps(given)}, ours {json.dumps(made)}"
    return None


def make_configs(case_config: Mapping[str, Any]) -> tuple[SchedulerConfig, CacheConfig]:
    """Scheduler and cache options of a case. Raises `TypeError` for an unknown key."""
    options = dict(case_config)
    cache = CacheConfig(
        num_gpu_blocks=options.pop("num_blocks", _DEFAULT_NUM_BLOCKS),
        block_size=options.pop("block_size", 16),
        enable_prefix_caching=options.pop("enable_prefix_caching", True),
    )
    return SchedulerConfig(**options), cache


@dataclass(slots=True)
class _Batch:
    """A step in flight: what was scheduled, and how many tokens its run samples."""

    output: SchedulerOutput
    num_sampled_tokens: dict[Any, int]


class _Replay:
    """Drives one case through the engine's iterations and writes the rows."""

    def __init__(self, case: Case) -> None:
        self.name: str = case["name"]
        config, cache = make_configs(case["config"])
        self.scheduler: Scheduler = create_scheduler(config, cache)
        self.config = config
        self.workload: list[Row] = case["requests"]
        self.by_id: dict[Any, Row] = {spec["id"]: spec for spec in self.workload}
        self.pending = deque(sorted(self.workload, key=lambda spec: spec["arrival_step"]))
        self.aborts = _by_step(self.workload, "abort_step")
        self.mid_aborts = _by_step(self.workload, "abort_mid")
        self.in_flight: deque[_Batch] = deque()

    def run(self) -> list[Row]:
        rows: list[Row] = []
        step = 0
        idle = 0
        while self.pending or self.scheduler.has_requests or self.in_flight:
            if step > _MAX_ITERATIONS or idle > _MAX_ITERATIONS_WITHOUT_OUTPUT:
                raise ConformanceError(
                    f"case {self.name}: no end in sight at iteration {step}; unfinished: "
                    f"{sorted(self.scheduler.requests)}; does a request outgrow the pool?"
                )
            row = self._iterate(step)
            if row is not None:
                rows.append(row)
            idle = 0 if row is None or row.get("emitted") else idle + 1
            step += 1
        return rows

    def _iterate(self, step: int) -> Row | None:
        while self.pending and self.pending[0]["arrival_step"] <= step:
            self.scheduler.add_request(_make_request(self.pending.popleft(), self.by_id))
        row: Row = {"step": step}
        self._abort(self.aborts.get(step, ()), row, "aborted")
        worked = self._iterate_async(row) if self.config.async_scheduling else self._step(row)
        return row if worked else None

    def _abort(self, request_ids: Sequence[str], row: Row, field: str) -> None:
        aborted: list[str] = []
        for request_id in request_ids:
            aborted.extend(str(r.request_id) for r in self.scheduler.finish_requests([request_id]))
        if aborted:
            row[field] = aborted

    def _step(self, row: Row) -> bool:
        if not self.scheduler.has_requests:
            return False
        self._process(self._schedule(row), row)
        return True

    def _iterate_async(self, row: Row) -> bool:
        """One turn of vLLM's batch queue of two: fill it before taking a result from it."""
        if not self.scheduler.has_requests and not self.in_flight:
            return False
        if self.scheduler.has_requests:
            batch = self._schedule(row)
            self.in_flight.append(batch)
            if len(self.in_flight) == 1 and (
                batch.output.num_scheduled_tokens or self.scheduler.requests
            ):
                return True
        self._process(self.in_flight.popleft(), row)
        return True

    def _schedule(self, row: Row) -> _Batch:
        scheduler = self.scheduler
        output = scheduler.schedule()
        new, cached = output.scheduled_new_reqs, output.scheduled_cached_reqs
        computed = {data.request_id: data.num_computed_tokens for data in new}
        progress = zip(cached.req_ids, cached.num_computed_tokens, strict=True)
        computed |= {r: tokens for r, tokens in progress if r in cached.resumed_req_ids}
        row["scheduled"] = dict(output.num_scheduled_tokens)
        row["new"] = [data.request_id for data in new]
        row["resumed"] = [r for r in cached.req_ids if r in cached.resumed_req_ids]
        row["computed"] = computed
        row["preempted"] = sorted(output.preempted_req_ids, key=str)
        if output.scheduled_spec_decode_tokens:
            row["drafts"] = dict(output.scheduled_spec_decode_tokens)
        row["running"] = list(scheduler.running)
        row["waiting"] = [request.request_id for request in scheduler.waiting]
        row["skipped"] = [request.request_id for request in scheduler.skipped_waiting]
        row["free_blocks"] = scheduler.kv_cache_manager.num_free_blocks
        return _Batch(output, self._sample(output))

    def _sample(self, output: SchedulerOutput) -> dict[Any, int]:
        sampled: dict[Any, int] = {}
        for request_id in output.sampling_req_ids:
            num_accepted = 0
            num_drafts = output.scheduled_spec_decode_tokens.get(request_id, 0)
            accepts = self.by_id[request_id].get("accepts")
            request = self.scheduler.requests[request_id]
            if num_drafts and accepts and request_id not in self._padded(output):
                num_accepted = min(num_drafts, accepts[request.num_output_tokens % len(accepts)])
            sampled[request_id] = 1 + num_accepted
        return sampled

    def _padded(self, output: SchedulerOutput) -> set[Any]:
        """Admissions of this step: their drafts are placeholders, which no model accepts."""
        admitted = {data.request_id for data in output.scheduled_new_reqs}
        return admitted | output.scheduled_cached_reqs.resumed_req_ids

    def _process(self, batch: _Batch, row: Row) -> None:
        self._abort(self.mid_aborts.get(row["step"], ()), row, "aborted_mid")
        outputs = self.scheduler.update_from_output(batch.output, batch.num_sampled_tokens)
        self._propose(batch.output)
        row["emitted"] = {o.request_id: o.num_new_tokens for o in outputs}
        row["finished"] = _finished(outputs)
        row["free_blocks_after"] = self.scheduler.kv_cache_manager.num_free_blocks

    def _propose(self, output: SchedulerOutput) -> None:
        limit = self.config.num_speculative_tokens
        if not limit or self.config.async_scheduling:
            return
        drafts: dict[Any, int] = {}
        running = self.scheduler.running
        for request_id in output.num_scheduled_tokens:
            proposals = self.by_id[request_id].get("proposals")
            if request_id in running and proposals:
                num_outputs = self.scheduler.requests[request_id].num_output_tokens
                drafts[request_id] = min(limit, proposals[num_outputs % len(proposals)])
        self.scheduler.update_draft_token_ids(drafts)


def _finished(outputs: Sequence[EngineCoreOutput]) -> list[Any]:
    return sorted((o.request_id for o in outputs if o.finish_reason is not None), key=str)


def _by_step(workload: Sequence[Row], key: str) -> dict[int, list[str]]:
    steps: dict[int, list[str]] = {}
    for spec in workload:
        if spec.get(key) is not None:
            steps.setdefault(spec[key], []).append(spec["id"])
    return steps


def _make_request(spec: Row, by_id: Mapping[str, Row]) -> Request:
    segments = tuple(
        piece
        for segment, num_tokens in spec["prompt"]
        for piece in _pieces(segment, num_tokens, by_id)
    )
    return Request(
        spec["id"],
        sum(num_tokens for _, num_tokens in segments),
        spec["max_tokens"],
        arrival_time=spec["arrival_time"],
        priority=spec["priority"],
        prompt=segments,
        stop_at=spec.get("eos_at"),
        lora_id=spec.get("lora", 0),
    )


def _pieces(
    segment: int | str, num_tokens: int, by_id: Mapping[str, Row]
) -> tuple[tuple[int | str, int], ...]:
    """A segment's pieces: the stop token is one and the same token wherever it was generated."""
    author = by_id.get(segment[4:]) if isinstance(segment, str) else None
    stop_at = author.get("eos_at") if author else None
    if stop_at is None or num_tokens < stop_at:
        return ((segment, num_tokens),)
    return ((segment, stop_at - 1), ("stop token", 1), (f"{segment}+", num_tokens - stop_at))


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    text = "".join(f"{line}\n" for line in lines).encode()
    data = gzip.compress(text, mtime=0) if path.suffix == ".gz" else text
    temporary = path.with_name(f".{path.name}.part")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ConformanceError(f"{path}: cannot be written: {error}") from None
