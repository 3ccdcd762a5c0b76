"""Damaged files end in a trace or in a TraceError, never in another exception."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traces import Trace, TraceError, load, load_measured, save

TRACE = Trace.from_columns(
    [0.0, 0.25, 1.5], [10, 20, 30], [1, 2, 3], priority=[0, 1, -1], request_id=[4, 5, 6]
)
AZURE = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    b"2023-11-16 18:15:46.6805900,374,44\r\n2024-05-12 00:00:00+00:00,396,109"
)
FORMATS = ["auto", "azure", "headway-csv", "headway-jsonl", "headway-parquet"]


RECORDED = {
    "azure": AZURE,
    "mooncake": b'{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}\n'
    b'{"timestamp": 9, "input_length": 20, "output_length": 5, "hash_ids": [3]}\n',
    "qwen": b'{"chat_id": 5, "parent_chat_id": -1, "timestamp": 0, "input_length": 20, '
    b'"output_length": 5, "turn": 1, "hash_ids": [1, 2]}\n',
    "weka": b'{"id": "a", "block_size": 64, "hash_id_scope": "local", "requests": [{"t": 0.5, '
    b'"type": "n", "in": 70, "out": 5, "hash_ids": [1]}, {"type": "subagent", "requests": '
    b'[{"t": 3, "in": 9, "out": 2, "hash_ids": []}]}]}',
    "burstgpt": b"Timestamp,Session ID,Elapsed time,Request tokens,Response tokens\n1,a,2,3,4\n",
    "vllm": b'{"completed": 1, "request_throughput": 1, "input_lens": [5], "output_lens": [2], '
    b'"ttfts": [0.1], "itls": [[0.1]], "errors": [""], "start_times": [1.5]}',
    "aiperf": b'{"metadata": {"request_start_ns": 5, "turn_index": 0, "x_correlation_id": "a"}, '
    b'"metrics": {"input_sequence_length": {"value": 5, "unit": "tokens"}}}\n',
    "guidellm": b'{"benchmarks": [{"requests": {"successful": [{"request_start_time": 1.5, '
    b'"prompt_tokens": 5, "output_tokens": 2}], "errored": [], "incomplete": null}}]}',
    "agentic": b'{"session_id": "a", "arrival_time_ns": 5, "sub_requests": [{"input_toks": 5, '
    b'"output_toks": 2, "tool_duration_ns": 9}]}\n',
}


def good_bytes(folder: Path, suffix: str) -> bytes:
    if suffix in RECORDED:
        return RECORDED[suffix]
    path = folder / f"good.{suffix}"
    save(TRACE, path, overwrite=True)
    return path.read_bytes()


@pytest.mark.parametrize("suffix", [*RECORDED, "csv", "jsonl", "parquet"])
@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    start=st.floats(0, 1),
    removed=st.integers(0, 12),
    inserted=st.binary(max_size=6) | st.text(alphabet='0123456789,.-"\n[]{}e: TZ', max_size=6),
    format=st.sampled_from(FORMATS),
)
def test_damage_is_refused_or_read(
    tmp_path: Path, suffix: str, start: float, removed: int, inserted: bytes | str, format: str
) -> None:
    data = good_bytes(tmp_path, suffix)
    at = int(start * len(data))
    patch = inserted.encode() if isinstance(inserted, str) else inserted
    path = tmp_path / "damaged"
    path.write_bytes(data[:at] + patch + data[at + removed :])
    for on_bad_row in ("error", "skip"):
        with contextlib.suppress(TraceError):
            assert len(load(path, format=format, on_bad_row=on_bad_row)) >= 1
    with contextlib.suppress(TraceError):
        load_measured(path)
