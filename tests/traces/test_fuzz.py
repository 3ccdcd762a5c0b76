"""Damaged files end in a trace or in a TraceError, never in another exception."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traces import Trace, TraceError, load, save

TRACE = Trace.from_columns(
    [0.0, 0.25, 1.5], [10, 20, 30], [1, 2, 3], priority=[0, 1, -1], request_id=[4, 5, 6]
)
AZURE = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    b"2023-11-16 18:15:46.6805900,374,44\r\n2024-05-12 00:00:00+00:00,396,109"
)
FORMATS = ["auto", "azure", "headway-csv", "headway-jsonl", "headway-parquet"]


def good_bytes(folder: Path, suffix: str) -> bytes:
    if suffix == "azure":
        return AZURE
    path = folder / f"good.{suffix}"
    save(TRACE, path, overwrite=True)
    return path.read_bytes()


@pytest.mark.parametrize("suffix", ["azure", "csv", "jsonl", "parquet"])
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
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
    with contextlib.suppress(TraceError):
        assert len(load(path, format=format)) >= 1
