"""All formats, and the choice among them."""

from __future__ import annotations

from pathlib import Path

from traces.columns import unknown_format
from traces.errors import TraceError, did_you_mean, listed
from traces.files import Head, check_is_text
from traces.formats.azure import AzureFormat
from traces.formats.base import Format
from traces.formats.burstgpt import BurstGptFormat
from traces.formats.headway_csv import HeadwayCsvFormat
from traces.formats.headway_jsonl import HeadwayJsonlFormat
from traces.formats.headway_parquet import PARQUET_MAGIC, HeadwayParquetFormat
from traces.formats.llmservingsim import LlmServingSimAgenticFormat, LlmServingSimFormat
from traces.formats.load_tests import AIPERF, GUIDELLM, LLMSERVINGSIM_BENCH, VLLM_BENCH
from traces.formats.mooncake import MooncakeFormat
from traces.formats.qwen import QwenFormat
from traces.formats.vidur import SPLITWISE, VIDUR
from traces.formats.weka import WekaFormat
from traces.not_traces import refuse_clients

FORMATS: tuple[Format, ...] = (
    AzureFormat(),
    BurstGptFormat(),
    HeadwayCsvFormat(),
    HeadwayJsonlFormat(),
    HeadwayParquetFormat(),
    MooncakeFormat(),
    QwenFormat(),
    WekaFormat(),
    VIDUR,
    SPLITWISE,
    LlmServingSimFormat(),
    LlmServingSimAgenticFormat(),
    LLMSERVINGSIM_BENCH,
    VLLM_BENCH,
    AIPERF,
    GUIDELLM,
)

_LEAST_SCORE = 0.5


def format_named(name: str) -> Format:
    """The format called `name`; raises TraceError, with the nearest name, if there is none."""
    for each in FORMATS:
        if each.name == name:
            return each
    names = [each.name for each in FORMATS]
    hint = did_you_mean(name, names)
    raise TraceError(f"unknown trace format {name!r}{hint}; known are auto, {listed(names)}")


def detect(head: Head) -> Format:
    """The format that knows the beginning of the file best.

    Raises:
        TraceError: none does.
    """
    if not head.data.startswith(PARQUET_MAGIC):
        check_is_text(head)
    scores = [each.score(head) for each in FORMATS]
    best = max(scores)
    if best <= _LEAST_SCORE:
        refuse_clients(Path(head.path))
        raise unknown_format(head.path, head.first_line, [each.summary for each in FORMATS])
    return FORMATS[scores.index(best)]
