"""`headway trace` and `headway compare-measured`, as a user types them."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from sim import result as run_folder
from sim.cli.app import run_app
from sim.config import resolve_study
from sim.errors import StudyError
from sim.overlay import overlay
from sim.simulation import simulate
from traces import RequestSpec, Trace, load, load_measured, save

PNG = b"\x89PNG"


@pytest.fixture
def mooncake(tmp_path: Path) -> Path:
    path = tmp_path / "m.jsonl"
    rows = [
        {"timestamp": 3000 * i, "input_length": 600, "output_length": 4, "hash_ids": [0, i + 1]}
        for i in range(8)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_info_prints_the_guess_and_the_figures(
    mooncake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_app(["trace", "info", str(mooncake), "--plot", str(tmp_path / "p.png")]) == 0
    out, err = capsys.readouterr()
    assert "read as mooncake, times in ms, blocks of 512 tokens (guessed from its content)" in err
    assert "0.381 requests a second" not in out
    assert "0.3333 requests a second" in out
    assert "43.8% of blocks" in out  # 7 of 16: the first block of all but the first request
    assert (tmp_path / "p.png").read_bytes().startswith(PNG)


def test_info_as_json(mooncake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["trace", "info", str(mooncake), "--json", "--time-unit", "s"]
    assert run_app(arguments) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["requests"], facts["span_s"], facts["time_unit"]) == (8, 21_000.0, "s")
    assert facts["prefix"]["pools"][0]["hit_share_of_blocks"] == 7 / 16


def test_bad_files_are_one_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,num_prompt_tokens,num_output_tokens\n0,1,1\n1,x,1\n2,3,1\n")
    assert run_app(["trace", "info", str(path)]) == 2
    assert (
        capsys.readouterr().err.splitlines()[-1].startswith(f"headway: {path}, line 3, num_prompt")
    )
    assert run_app(["trace", "info", str(path), "--on-bad-row", "skip"]) == 0
    assert "dropped, bad num_prompt_tokens" in capsys.readouterr().out


def test_convert_refuses_what_would_be_lost(
    mooncake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "t.csv"
    assert run_app(["trace", "convert", str(mooncake), str(out)]) == 2
    assert "can't hold prompt segments" in capsys.readouterr().err
    assert not out.exists()
    assert run_app(["trace", "convert", str(mooncake), str(out), "--allow-loss"]) == 0
    captured = capsys.readouterr()
    assert "headway: lost: prompt segments" in captured.err
    assert captured.out == f"8 requests over 21 s: {out}\n"
    assert run_app(["trace", "convert", str(mooncake), str(tmp_path / "t.parquet")]) == 0
    assert load(tmp_path / "t.parquet").content_sha256 == load(mooncake).content_sha256


def test_generate_is_the_trace_of_a_study(tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text(
        "trace:\n"
        "  generator:\n"
        "    arrivals: {process: staged, stages: [{rate_per_s: 2.0, duration_s: 10.0}]}\n"
        "    prompt_tokens: {median: 50.0}\n"
        "    output_tokens: {median: 5.0}\n"
    )
    for seed, name in ((1, "a"), (1, "b"), (2, "c")):
        out = str(tmp_path / f"{name}.jsonl")
        arguments = ["trace", "generate", str(tmp_path / "g.yaml"), out, "--seed", str(seed)]
        assert run_app(arguments) == 0
    one, same, other = ((tmp_path / f"{name}.jsonl").read_bytes() for name in "abc")
    assert one == same != other
    assert len(load(tmp_path / "a.jsonl")) == 20


def test_generate_names_a_wrong_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "g.yaml").write_text("trace: {sample: true, thinn: 0.5}\n")
    assert run_app(["trace", "generate", str(tmp_path / "g.yaml"), str(tmp_path / "o.csv")]) == 2
    assert "trace.thinn: unknown key; did you mean 'thin'?" in capsys.readouterr().err


def study(**trace: Any) -> dict[str, Any]:
    return {
        "trace": trace,
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm-80gb",
        "cost_model": {"kind": "constant", "step_s": 0.01},
    }


def resolved(**trace: Any) -> Trace:
    return resolve_study(study(**trace), "test").trace


def test_transforms_are_applied_in_the_order_told(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    save(Trace.from_columns(np.arange(1_000.0), np.full(1_000, 50), np.full(1_000, 9)), path)
    trace = resolved(
        path=str(path),
        window_s=[100.0, 900.0],
        limit=600,
        thin=0.5,
        merge=[{"path": str(path), "limit": 10, "tenant": "b"}],
        tenant="a",
        max_prompt_tokens=20,
        max_output_tokens=3,
        priority_map={0: 4},
        jitter_s=0.5,
        rate_scale=10.0,
    )
    tenants = [request.tenant for request in trace]
    assert tenants.count("b") == 10
    assert tenants.count("a") == pytest.approx(300, abs=50)
    assert set(trace.num_prompt_tokens.tolist()) == {20}
    assert set(trace.num_output_tokens.tolist()) == {3}
    assert set(trace.priority.tolist()) == {4}
    assert trace.arrival_s[0] == 0.0
    assert trace.duration_s == pytest.approx(60, abs=1)


def test_each_use_of_chance_has_its_own_stream(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    save(Trace.from_columns(np.arange(200.0), np.full(200, 50), np.full(200, 9)), path)
    one = resolved(path=str(path), thin=0.5)
    other = resolved(path=str(path), thin=0.5, priority_weights={0: 1.0, 1: 1.0}, jitter_s=0.1)
    assert one.request_id.tolist() == other.request_id.tolist()


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        ({"sample": True, "time_unit": "ms"}, "trace.time_unit: it is for a trace file"),
        ({"sample": True, "servegen": {"path": "x", "end_s": 5.0}}, "sample and servegen"),
        ({"generator": {"num_requests": 5}}, "one of rate_per_s and arrivals"),
        ({"generator": {"rate_per_s": 1.0}}, "num_requests: missing"),
        ({"generator": {"rate_per_s": 1.0, "num_requests": 5}}, "prompt_tokens: missing"),
        ({"sample": True, "thin": 0.0}, "trace.thin: 0.0 is out of range"),
        ({"sample": True, "window_s": [1.0]}, "trace.window_s"),
        ({"sample": True, "merge": [{}]}, "trace: give one of path"),
    ],
)
def test_wrong_trace_sections_are_refused(trace: dict[str, Any], words: str) -> None:
    with pytest.raises(StudyError, match=words):
        resolved(**trace)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    rows = [RequestSpec(i, i * 1.0, 100, 5, ((f"p{i}", 100),)) for i in range(6)]
    save(Trace.from_requests(rows), tmp_path / "t.jsonl")
    result = simulate(resolve_study(study(path=str(tmp_path / "t.jsonl")), "test"))
    return run_folder.save(result, tmp_path / "run", plots=False)


def measured_file(tmp_path: Path) -> Path:
    """What the constant steps of 10 ms would measure, but for TTFT: 20 ms."""
    values = {
        "completed": 6,
        "request_throughput": 1.0,
        "input_lens": [100] * 6,
        "output_lens": [5] * 6,
        "ttfts": [0.02] * 6,
        "itls": [[0.01] * 4] * 6,
        "errors": [""] * 6,
    }
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(values))
    return path


def test_overlay_matches_definitions(run_dir: Path, tmp_path: Path) -> None:
    found = overlay(run_folder.load(run_dir), load_measured(measured_file(tmp_path))).to_dict()
    metrics = found["metrics"]
    assert metrics["TTFT (s)"]["mean"]["error"] == pytest.approx(-0.5)
    assert metrics["TPOT (s)"]["p50"]["error"] == pytest.approx(0.0, abs=1e-9)
    assert metrics["ITL, pooled (s)"]["count"]["measured"] == 24
    assert metrics["ITL, pooled (s)"]["count"]["simulated"] == 24
    assert metrics["E2E (s)"]["max"]["simulated"] == pytest.approx(0.05)
    assert metrics["output tokens"]["mean"]["error"] == 0.0
    assert not any("differ between" in note for note in found["notes"])


def test_compare_measured_prints_and_draws(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = str(measured_file(tmp_path))
    assert run_app(["compare-measured", str(run_dir), bench]) == 0
    out = capsys.readouterr().out
    assert "-50.0%" in out
    assert "TPOT (s)" in out
    assert (run_dir / "plots/measured.png").read_bytes().startswith(PNG)
    assert run_app(["compare-measured", str(run_dir), bench, "--json", "--no-plot"]) == 0
    assert json.loads(capsys.readouterr().out)["tool"] == "vllm bench serve"


def test_export_writes_what_was_sent(run_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "sent.jsonl"
    assert run_app(["trace", "export", str(run_dir), str(out)]) == 0
    assert load(out).content_sha256 == load(tmp_path / "t.jsonl").content_sha256
    (tmp_path / "t.jsonl").write_text('{"arrival_s":0,"num_prompt_tokens":1,"num_output_tokens":1}')
    assert run_app(["trace", "export", str(run_dir), str(tmp_path / "again.jsonl")]) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("convert", "no-such-file.csv"),
        ("generate", "no-such-study.yaml"),
        ("export", "no-such-run"),
    ],
)
def test_a_file_that_is_there_is_refused_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, str]
) -> None:
    """The input is not even there: what is said first is what was looked at first."""
    out = tmp_path / "out.jsonl"
    out.write_text("mine")
    assert run_app(["trace", *arguments, str(out)]) == 2
    said = capsys.readouterr().err
    assert f"{out}: the file exists" in said and "--overwrite" in said
    assert out.read_text() == "mine"
    assert run_app(["trace", *arguments, str(out), "--overwrite"]) == 2
    assert arguments[1] in capsys.readouterr().err
    assert run_app(["trace", *arguments, str(tmp_path)]) == 2
    assert "no format has the suffix" in capsys.readouterr().err


def test_a_file_is_replaced_with_overwrite(mooncake: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("mine")
    assert run_app(["trace", "convert", str(mooncake), str(out), "--overwrite"]) == 0
    assert load(out).content_sha256 == load(mooncake).content_sha256


def test_the_files_of_a_run_are_no_traces_but_can_be_exported(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("", "requests.parquet", "steps.parquet", "gaps.parquet"):
        assert run_app(["trace", "info", str(run_dir / name)]) == 2
        said = capsys.readouterr().err
        assert "a run, not a trace" in said
        command = re.search(r"`headway (trace export .*?)`", said)
        assert command is not None
    *arguments, out = command[1].split()
    assert run_app([*arguments, str(tmp_path / out)]) == 0
    assert run_app(["trace", "info", str(tmp_path / out)]) == 0


def test_servegen_s_clients_are_no_traces_but_can_be_generated_from(
    tmp_path: Path, shared_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shared_dir / "data" / "traces" / "servegen"
    for path in (folder, folder / "chunk-1-trace.csv", folder / "chunk-1-dataset.json"):
        assert run_app(["trace", "info", str(path)]) == 2
        said = capsys.readouterr().err
        assert f"{path}: " in said and "ServeGen's clients, not a trace" in said
        given = re.search(r"in a study, (trace: .*\}), which", said)
        assert given is not None
        section = yaml.safe_load(given[1])
        assert section["trace"]["servegen"]["path"] == str(folder)
    section["trace"]["servegen"]["end_s"] = 24 * 3600
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(section))
    out = str(tmp_path / "out.jsonl")
    assert run_app(["trace", "generate", str(tmp_path / "study.yaml"), out]) == 0
