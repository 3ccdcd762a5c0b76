"""Bad trace files: each gives one clear sentence that names file, place, field and value."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from traces import TraceError, load

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
GOOD_AZURE = "2023-11-16 18:15:46.6805900,374,44\n"
OWN = "arrival_s,num_prompt_tokens,num_output_tokens\n"
GOOD_OWN = "0.5,10,20\n"
FULL = "arrival_s,num_prompt_tokens,num_output_tokens,request_id,priority\n"
JSON_ROW = '{"arrival_s": 0.5, "num_prompt_tokens": 10, "num_output_tokens": 20'


def azure_row(time: str = "2023-11-16 18:15:47", prompt: str = "5", output: str = "6") -> str:
    return f"{AZURE}{GOOD_AZURE}{time},{prompt},{output}\n"


def own_row(time: str = "1", prompt: str = "5", output: str = "6") -> str:
    return f"{OWN}{GOOD_OWN}{time},{prompt},{output}\n"


def json_rows(second: str) -> str:
    return f"{JSON_ROW}}}\n{second}"


# name -> (content, words that the message must hold beside the file's name)
CASES: dict[str, tuple[str | bytes, list[str]]] = {
    "empty": ("", ["empty"]),
    "only blanks": (" \n\n\t\n", ["empty"]),
    "only a BOM": (b"\xef\xbb\xbf", ["empty"]),
    "azure header only": (AZURE, ["line 1", "ends after its header"]),
    "own header only": (OWN, ["line 1", "ends after its header"]),
    "wrong header": ("a,b,c\n1,2,3\n", ["line 1", "'a,b,c'", "TIMESTAMP", "arrival_s"]),
    "no header": (GOOD_AZURE, ["line 1", "2023-11-16", "TIMESTAMP"]),
    "prose": ("Dear reader,\n", ["line 1", "Dear reader"]),
    "semicolons": (AZURE.replace(",", ";") + "x;1;2\n", ["line 1", "separated by ';'"]),
    "tabs": (OWN.replace(",", "\t") + "0\t1\t2\n", ["line 1", "separated by a tab"]),
    "azure misspelt column": (
        "TIMESTAMP,ContextTokens,GeneratedToken\n",
        ["line 1", "unknown column 'GeneratedToken'", "did you mean 'GeneratedTokens'"],
    ),
    "azure column in lower case": (
        "timestamp,ContextTokens,GeneratedTokens\n",
        ["line 1", "unknown column 'timestamp'", "did you mean 'TIMESTAMP'"],
    ),
    "own misspelt column": (
        "arival_s,num_prompt_tokens,num_output_tokens\n",
        ["line 1", "unknown column 'arival_s'", "did you mean 'arrival_s'"],
    ),
    "misspelt optional column": (
        "arrival_s,num_prompt_tokens,num_output_tokens,prioritty\n0,1,1,5\n",
        ["line 1", "unknown column 'prioritty'", "did you mean 'priority'"],
    ),
    "azure extra column": (
        "TIMESTAMP,NumVideos,ContextTokens,GeneratedTokens\n",
        ["line 1", "unknown column 'NumVideos'", "ContextTokens"],
    ),
    "missing column": ("arrival_s,num_prompt_tokens\n", ["line 1", "'num_output_tokens'"]),
    "column twice": (
        "arrival_s,num_prompt_tokens,num_output_tokens,priority,priority\n",
        ["line 1", "'priority' occurs twice"],
    ),
    "text count": (azure_row(prompt="many"), ["line 3", "ContextTokens", "'many'", "whole number"]),
    "negative count": (azure_row(output="-6"), ["line 3", "GeneratedTokens", "'-6'", "from 0"]),
    "NaN count": (azure_row(output="nan"), ["line 3", "GeneratedTokens", "'nan'"]),
    "fractional count": (azure_row(prompt="5.5"), ["line 3", "ContextTokens", "'5.5'"]),
    "huge count": (azure_row(prompt="100000001"), ["line 3", "ContextTokens", "'100000001'"]),
    "count beyond any integer": (own_row(output="9" * 400), ["line 3", "num_output_tokens", "999"]),
    "empty count": (azure_row(prompt=""), ["line 3", "ContextTokens", "''"]),
    "count with a blank": (own_row(prompt=" 5"), ["line 3", "num_prompt_tokens", "' 5'"]),
    "count with an underscore": (own_row(prompt="1_000"), ["line 3", "num_prompt_tokens", "1_000"]),
    "count in Arabic digits": (own_row(prompt="٤٢"), ["line 3", "num_prompt_tokens", "'٤٢'"]),
    "count as superscript": (own_row(prompt="4²"), ["line 3", "num_prompt_tokens", "'4²'"]),
    "hexadecimal count": (own_row(output="0x10"), ["line 3", "num_output_tokens", "'0x10'"]),
    "missing time": (azure_row(time=""), ["line 3", "TIMESTAMP", "''", "UTC time"]),
    "time in words": (azure_row(time="yesterday"), ["line 3", "TIMESTAMP", "'yesterday'"]),
    "now": (azure_row(time="now"), ["line 3", "TIMESTAMP", "'now'"]),
    "NaT": (azure_row(time="NaT"), ["line 3", "TIMESTAMP", "'NaT'"]),
    "date only": (azure_row(time="2023-11-16"), ["line 3", "TIMESTAMP", "'2023-11-16'"]),
    "month 13": (azure_row(time="2023-13-16 18:15:46"), ["line 3", "TIMESTAMP", "2023-13-16"]),
    "30 February": (azure_row(time="2023-02-30 18:15:46"), ["line 3", "TIMESTAMP", "2023-02-30"]),
    "hour 25": (azure_row(time="2023-11-16 25:15:46"), ["line 3", "TIMESTAMP", "25:15:46"]),
    "second 61": (azure_row(time="2023-11-16 18:15:61"), ["line 3", "TIMESTAMP", "18:15:61"]),
    "other zone": (
        azure_row(time="2023-11-16 18:15:46+02:00"),
        ["line 3", "TIMESTAMP", "+02:00", "UTC"],
    ),
    "year 9999": (azure_row(time="9999-11-16 18:15:46"), ["line 3", "TIMESTAMP", "9999"]),
    "seconds for a clock": (azure_row(time="12.5"), ["line 3", "TIMESTAMP", "'12.5'"]),
    "clock for seconds": (own_row(time="2023-11-16 18:15:46"), ["line 3", "arrival_s", "2023"]),
    "NaN seconds": (own_row(time="nan"), ["line 3", "arrival_s", "'nan'", "finite"]),
    "infinite seconds": (own_row(time="inf"), ["line 3", "arrival_s", "'inf'", "finite"]),
    "overflowing seconds": (own_row(time="1e999"), ["line 3", "arrival_s", "'1e999'"]),
    "negative seconds": (own_row(time="-1"), ["line 3", "arrival_s", "'-1'", ">= 0"]),
    "missing seconds": (own_row(time=""), ["line 3", "arrival_s", "''"]),
    "decimal comma": (own_row(time='"1,5"'), ["line 3", "arrival_s", "'1,5'"]),
    "too few cells": (f"{OWN}{GOOD_OWN}1,2\n", ["line 3", "num_output_tokens", "2 cells", "3"]),
    "too many cells": (f"{OWN}{GOOD_OWN}1,2,3,4\n", ["line 3", "'4'", "4 cells", "has 3"]),
    "cut row": (f"{AZURE}{GOOD_AZURE}2023-11-16 18:1", ["line 3", "ContextTokens", "1 cells"]),
    "open quote": (f'{OWN}{GOOD_OWN}1,"2,3\n', ["line 3", "no CSV row"]),
    "endless cell": (f"{OWN}{GOOD_OWN}{'1' * 200_000},1,1\n", ["line 3", "no CSV row", "limit"]),
    "id twice": (
        FULL + "0,1,1,7,0\n1,1,1,8,0\n2,1,1,7,0\n",
        ["line 4", "request_id", "7", "line 2", "unique"],
    ),
    "negative id": (FULL + "0,1,1,-7,0\n", ["line 2", "request_id", "'-7'"]),
    "huge id": (
        FULL + "0,1,1,9223372036854775808,0\n",
        ["line 2", "request_id", "922337203685477"],
    ),
    "text priority": (FULL + "0,1,1,7,high\n", ["line 2", "priority", "'high'"]),
    "empty priority": (FULL + "0,1,1,7,\n", ["line 2", "priority", "''"]),
    "invalid UTF-8": (OWN.encode() + b"0.5,1\xff0,20\n", ["line 2", "UTF-8", "xff"]),
    "UTF-16": ((OWN + GOOD_OWN).encode("utf-16"), ["line 1", "UTF-16", "UTF-8"]),
    "binary": (b"\x7fELF\x02\x01\x01\0\0\0", ["line 1", "binary"]),
    "zero byte in a row": (OWN + GOOD_OWN + "1,\0,1\n", ["line 3", "zero byte"]),
    "gzip cut off": (gzip.compress((OWN + GOOD_OWN).encode())[:-12], ["gzip", "cut off"]),
    "a gzip that isn't": (b"\x1f\x8b" + OWN.encode(), ["gzip", "damaged"]),
    "gzip of nothing": (gzip.compress(b""), ["empty"]),
    "bzip2": (b"BZh91AY&SY", ["bzip2", "unpack"]),
    "zip": (b"PK\x03\x04rest", ["zip", "unpack"]),
    "a zstandard that isn't": (b"\x28\xb5\x2f\xfdrest", ["zstandard", "damaged"]),
    "truncated JSON": (json_rows(JSON_ROW[:-5]), ["line 2", "no JSON"]),
    "truncated JSON in line 1": (JSON_ROW, ["line 1", "no JSON"]),
    "JSON number": (json_rows("5\n"), ["line 2", "5", "object"]),
    "JSON text in line 1": ('"abc"\n', ["line 1", "abc"]),
    "JSON with a stranger's keys": (
        '{"when": 1, "question": 2, "answer": 3}\n',
        ["line 1", "question", "known are"],
    ),
    "JSON misspelt key": (
        json_rows(JSON_ROW + ', "priorty": 1}\n'),
        ["line 2", "unknown key 'priorty'", "did you mean 'priority'"],
    ),
    "JSON misspelt key in line 1": (
        JSON_ROW.replace("output_tokens", "ouput_tokens") + "}\n",
        ["line 1", "unknown key 'num_ouput_tokens'", "did you mean 'num_output_tokens'"],
    ),
    "JSON missing key": (
        json_rows('{"arrival_s": 1, "num_prompt_tokens": 3}\n'),
        ["line 2", "'num_output_tokens' is missing"],
    ),
    "JSON key twice": (
        json_rows(JSON_ROW + ', "arrival_s": 1}\n'),
        ["line 2", "'arrival_s' occurs twice"],
    ),
    "JSON text count": (
        json_rows(JSON_ROW.replace("10", '"10"') + "}"),
        ["line 2", "num_prompt_tokens", "'10'", "whole number"],
    ),
    "JSON fractional count": (
        json_rows(JSON_ROW.replace("10", "10.0") + "}"),
        ["line 2", "num_prompt_tokens", "10.0"],
    ),
    "JSON boolean count": (
        json_rows(JSON_ROW.replace("10", "true") + "}"),
        ["line 2", "num_prompt_tokens", "True"],
    ),
    "JSON null count": (
        json_rows(JSON_ROW.replace("20", "null") + "}"),
        ["line 2", "num_output_tokens", "None"],
    ),
    "JSON NaN count": (
        json_rows(JSON_ROW.replace("20", "NaN") + "}"),
        ["line 2", "num_output_tokens", "nan"],
    ),
    "JSON negative count": (
        json_rows(JSON_ROW.replace("20", "-20") + "}"),
        ["line 2", "num_output_tokens", "-20"],
    ),
    "JSON huge count": (
        json_rows(JSON_ROW.replace("20", "1" + "0" * 30) + "}"),
        ["line 2", "num_output_tokens", "1000"],
    ),
    "JSON endless count": (
        json_rows(JSON_ROW.replace("20", "1" * 5000) + "}"),
        ["line 2", "digits"],
    ),
    "JSON text time": (
        json_rows(JSON_ROW.replace("0.5", '"now"') + "}"),
        ["line 2", "arrival_s", "'now'", "seconds"],
    ),
    "JSON infinite time": (
        json_rows(JSON_ROW.replace("0.5", "Infinity") + "}"),
        ["line 2", "arrival_s", "inf"],
    ),
    "JSON time beyond any float": (
        json_rows(JSON_ROW.replace("0.5", "1" + "0" * 400) + "}"),
        ["line 2", "arrival_s", "1000"],
    ),
    "JSON ids from the second row on": (
        json_rows(JSON_ROW + ', "request_id": 4}'),
        ["line 2", "'request_id' is there", "none"],
    ),
    "JSON ids end": (
        JSON_ROW + ', "request_id": 4}\n' + JSON_ROW + "}",
        ["line 2", "'request_id' is missing", "all rows"],
    ),
    "JSON prompt too short": (
        json_rows(JSON_ROW + ', "prompt": [["a", 4], ["b", 5]]}'),
        ["line 2", "prompt", "9 tokens", "10"],
    ),
    "JSON prompt of numbers": (
        json_rows(JSON_ROW + ', "prompt": [10]}'),
        ["line 2", "prompt", "[10]", "segments"],
    ),
    "JSON prompt null": (json_rows(JSON_ROW + ', "prompt": null}'), ["line 2", "prompt", "None"]),
    "JSON prompt with a fraction": (
        json_rows(JSON_ROW + ', "prompt": [["a", 10.0]]}'),
        ["line 2", "prompt", "10.0"],
    ),
    "JSON prompt with a triple": (
        json_rows(JSON_ROW + ', "prompt": [["a", 10, 1]]}'),
        ["line 2", "prompt", "('a', 10, 1)"],
    ),
    "JSON prompt with half a surrogate": (
        json_rows(JSON_ROW + ', "prompt": [["\\ud800", 10]]}'),
        ["line 2", "prompt", "ud800"],
    ),
    "JSON nested too deep": (json_rows("[" * 100_000), ["line 2", "no record"]),
    "Mooncake cut off": (
        '{"timestamp": 0, "input_length": 5, "output_length": 1}\n{"timestamp": 3, "inp',
        ["line 2", "no JSON"],
    ),
    "Mooncake with lengths swapped for times": (
        '{"timestamp": 0, "input_length": 1700000000000, "output_length": 1}\n',
        ["line 1", "input_length", "1700000000000"],
    ),
    "Mooncake misspelt key": (
        '{"timestamp": 0, "input_lenght": 5, "output_length": 1, "hash_ids": [1]}\n',
        ["line 1", "'input_lenght'", "did you mean 'input_length'"],
    ),
    "Mooncake negative time": (
        '{"timestamp": -3, "input_length": 5, "output_length": 1}\n',
        ["line 1", "timestamp", "-3"],
    ),
    "Qwen chat id as text": (
        '{"chat_id": "a", "parent_chat_id": -1, "timestamp": 0, "input_length": 5, '
        '"output_length": 1, "hash_ids": [1]}\n',
        ["line 1", "chat_id", "'a'"],
    ),
    "BurstGPT columns swapped": (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "ChatGPT,5,472,18,490,API log\n",
        ["line 2", "Timestamp", "'ChatGPT'"],
    ),
    "BurstGPT with tokens spelt out": (
        "Timestamp,Request tokens,Response tokens\n5,many,18\n",
        ["line 2", "Request tokens", "'many'"],
    ),
    "WEKA cut off": (
        '{"id": "a", "block_size": 64, "hash_id_scope": "local", "requests": [{"t": 0, "in": 5',
        ["line 1", "no JSON", "cut off"],
    ),
    "WEKA without requests": (
        '{"id": "a", "block_size": 64, "hash_id_scope": "local", "requests": {}}',
        ["'requests'", "a list of requests"],
    ),
    "WEKA request without a length": (
        '{"block_size": 64, "hash_id_scope": "local", "requests": [{"t": 0, "out": 5}]}',
        ["request 1", "'in' is missing"],
    ),
    "WEKA request that is none": (
        '{"block_size": 64, "hash_id_scope": "local", "requests": [7]}',
        ["request 1", "7"],
    ),
    "WEKA with too many hash ids": (
        '{"block_size": 64, "hash_id_scope": "local", '
        '"requests": [{"t": 0, "in": 64, "out": 5, "hash_ids": [1, 2]}]}',
        ["request 1", "2 ids", "in 64 has 1 full blocks of 64"],
    ),
    "LLMServingSim with too few token ids": (
        '{"input_toks": 3, "output_toks": 1, "arrival_time_ns": 0, "input_tok_ids": [1, 2]}\n',
        ["line 1", "2 ids", "input_toks is 3"],
    ),
    "LLMServingSim session without requests": (
        '{"session_id": "a", "arrival_time_ns": 0, "sub_requests": []}\n',
        ["line 1", "sub_requests", "[]"],
    ),
    "own parent as text": (
        json_rows(JSON_ROW + ', "parent_id": "one"}'),
        ["line 2", "parent_id", "'one'"],
    ),
    "own think time negative": (
        json_rows(JSON_ROW + ', "think_time_s": -1}'),
        ["line 2", "think_time_s", "-1"],
    ),
    "own adapter negative": (
        "arrival_s,num_prompt_tokens,num_output_tokens,lora_id\n0,1,1,-1\n",
        ["line 2", "lora_id", "'-1'"],
    ),
    "no Parquet after the magic": (b"PAR1 and then nothing", ["Parquet", "cut off"]),
}


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(TraceError) as caught:
        load(path, **options)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    assert len(message) < 1_000
    return message


@pytest.mark.parametrize("name", CASES)
def test_bad_file(write: Callable[..., Path], name: str) -> None:
    content, words = CASES[name]
    message = refusal(write(content))
    for word in words:
        assert word in message


@pytest.mark.parametrize("format", ["azure", "headway-csv", "headway-jsonl", "headway-parquet"])
@pytest.mark.parametrize(
    "name", ["binary", "gzip cut off", "wrong header", "UTF-16", "invalid UTF-8", "prose"]
)
def test_bad_file_with_its_format_named(write: Callable[..., Path], name: str, format: str) -> None:
    refusal(write(CASES[name][0]), format=format)


PARQUET: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no rows": ({"arrival_s": pa.array([], pa.float64())}, ["no rows"]),
    "unknown column": ({"piority": [1, 1]}, ["schema", "'piority'", "did you mean 'priority'"]),
    "null count": ({"num_output_tokens": [1, None]}, ["row 2", "num_output_tokens", "None"]),
    "null time": ({"arrival_s": [1.0, None]}, ["row 2", "arrival_s", "None"]),
    "NaN time": ({"arrival_s": [1.0, float("nan")]}, ["row 2", "arrival_s", "nan"]),
    "negative time": ({"arrival_s": [1.0, -2.0]}, ["row 2", "arrival_s", "-2.0"]),
    "text time": ({"arrival_s": ["a", "b"]}, ["row 1", "arrival_s", "'a'"]),
    "fractional counts": ({"num_prompt_tokens": [1.5, 2.0]}, ["row 1", "num_prompt_tokens", "1.5"]),
    "negative count": ({"num_prompt_tokens": [1, -2]}, ["row 2", "num_prompt_tokens", "-2"]),
    "huge count": (
        {"num_prompt_tokens": pa.array([1, 2**64 - 1], pa.uint64())},
        ["row 2", "num_prompt_tokens", "18446744073709551615"],
    ),
    "id twice": ({"request_id": [3, 3]}, ["row 2", "request_id", "3", "row 1"]),
    "huge priority": (
        {"priority": pa.array([1, 2**63], pa.uint64())},
        ["row 2", "priority", "9223372036854775808"],
    ),
    "prompt of texts": ({"prompt": ["a", "b"]}, ["row 1", "prompt", "'a'"]),
    "prompt too long": (
        {"prompt": [None, [{"segment_id": 1, "num_tokens": 99}]]},
        ["row 2", "prompt", "99 tokens"],
    ),
    "prompt with other keys": (
        {"prompt": [[{"id": 1, "num_tokens": 99}], None]},
        ["row 1", "prompt", "segment_id"],
    ),
}


@pytest.mark.parametrize("name", PARQUET)
def test_bad_parquet(tmp_path: Path, name: str) -> None:
    changes, words = PARQUET[name]
    columns: dict[str, Any] = {
        "arrival_s": [0.0, 1.0],
        "num_prompt_tokens": [1, 2],
        "num_output_tokens": [3, 4],
    }
    if name == "no rows":
        columns = {column: pa.array([], pa.int64()) for column in columns}
    path = tmp_path / "trace.parquet"
    pq.write_table(pa.table(columns | changes), path)
    message = refusal(path)
    for word in words:
        assert word in message


def test_truncated_parquet(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    columns = {"arrival_s": [0.0], "num_prompt_tokens": [1], "num_output_tokens": [2]}
    pq.write_table(pa.table(columns), path)
    path.write_bytes(path.read_bytes()[:-20])
    assert "cut off" in refusal(path)


def test_missing_file(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "absent.csv")


def test_directory(tmp_path: Path) -> None:
    assert "directory" in refusal(tmp_path)


def test_path_through_a_file(write: Callable[..., Path]) -> None:
    assert "can't be read" in refusal(write(OWN) / "trace.csv")


def test_line_without_end(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traces.files.MAX_LINE_BYTES", 1_000)
    message = refusal(write(OWN + GOOD_OWN + "1" * 2_000))
    assert "line 3" in message
    assert "longer than 1000 bytes" in message


def test_slip_in_a_later_chunk_names_its_line(write: Callable[..., Path]) -> None:
    rows = "".join(f"{time},10,20\n" for time in range(70_000))
    message = refusal(write(OWN + rows + "70000,10,x\n"))
    assert "line 70002, num_output_tokens: 'x'" in message
