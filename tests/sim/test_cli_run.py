"""`headway run` as a user has it: a process, its folders, its two streams and its exit code."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sim.cli.interrupt import interrupt_flag

HEADWAY = [sys.executable, "-m", "sim.cli"]
CHECKOUT = Path(__file__).resolve().parents[2]

STUDY = """
name: small
trace:
  generator:
    num_requests: 40
    rate_per_s: 20.0
    prompt_tokens: {median: 200.0, sigma: 0.5}
    output_tokens: {median: 20.0, sigma: 0.5}
model: llama-3.1-8b
hardware: h100-sxm-80gb
cost_model: {kind: roofline}
"""


def hear_signals() -> None:
    """As from a terminal: a job in the background of a script is started to ignore Ctrl-C."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def headway(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HEADWAY, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        check=False,
        preexec_fn=hear_signals,
    )


@pytest.fixture
def study(tmp_path: Path) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(STUDY)
    return file


def run_bytes(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_run_prints_its_table_and_leaves_a_named_folder(tmp_path: Path, study: Path) -> None:
    done = headway(tmp_path, "run", str(study))
    assert done.returncode == 0, done.stderr
    for word in ("TTFT", "TPOT", "ITL", "E2E", "Queue time", "data-sheet peaks"):
        assert word in done.stdout
    assert "run folder: runs/small" in done.stdout
    files = {path.name for path in (tmp_path / "runs" / "small").iterdir()}
    assert {"config.yaml", "summary.json", "requests.parquet", "steps.parquet", "plots"} <= files
    assert list((tmp_path / "runs" / "small" / "plots").glob("*.png"))


def test_a_second_run_takes_the_next_folder_and_leaves_the_first_alone(
    tmp_path: Path, study: Path
) -> None:
    headway(tmp_path, "run", str(study), "--no-plots")
    first = run_bytes(tmp_path / "runs" / "small")
    for number in (2, 3):
        done = headway(tmp_path, "run", str(study), "--no-plots")
        assert f"run folder: runs/small-{number}" in done.stdout
        assert run_bytes(tmp_path / "runs" / f"small-{number}") == first
    assert run_bytes(tmp_path / "runs" / "small") == first


def test_the_saved_config_runs_again_to_the_same_bytes(tmp_path: Path, study: Path) -> None:
    headway(tmp_path, "run", str(study), "--out", "one")
    done = headway(tmp_path, "run", "one/config.yaml", "--out", "two")
    assert done.returncode == 0, done.stderr
    assert run_bytes(tmp_path / "one") == run_bytes(tmp_path / "two")


def test_an_existing_folder_needs_overwrite(tmp_path: Path, study: Path) -> None:
    arguments = ("run", str(study), "--no-plots", "--out", "here")
    assert headway(tmp_path, *arguments).returncode == 0
    before = run_bytes(tmp_path / "here")
    refused = headway(tmp_path, *arguments, "--seed", "9")
    assert refused.returncode == 2
    assert "here: exists already" in refused.stderr and "--overwrite" in refused.stderr
    assert run_bytes(tmp_path / "here") == before
    replaced = headway(tmp_path, *arguments, "--seed", "9", "--overwrite")
    assert replaced.returncode == 0, replaced.stderr
    assert run_bytes(tmp_path / "here") != before


def test_overwrite_never_replaces_what_is_no_run_folder(tmp_path: Path, study: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    done = headway(tmp_path, "run", str(study), "--no-plots", "--out", "mine", "--overwrite")
    assert done.returncode == 2
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_json_is_the_summary_and_nothing_else(tmp_path: Path, study: Path) -> None:
    done = headway(tmp_path, "run", str(study), "--no-plots", "--json")
    assert done.returncode == 0, done.stderr
    saved = (tmp_path / "runs" / "small" / "summary.json").read_text()
    assert json.loads(done.stdout) == json.loads(saved)


def test_flags_and_set_override_the_study(tmp_path: Path, study: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
    )
    done = headway(
        tmp_path, "run", str(study), "--no-plots", "--json", "--trace", "t.csv", "--replicas", "2",
        "--model", "qwen3-8b", "--hardware", "l40s", "--seed", "4",
        "--set", "engine.max_num_seqs=7", "--set", "router=least-outstanding-tokens",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    config = (tmp_path / "runs" / "small" / "config.yaml").read_text()
    for line in (
        "seed: 4",
        "replicas: 2",
        "model: qwen3-8b",
        "hardware: l40s",
        "max_num_seqs: 7",
        "router: least-outstanding-tokens",
        f"path: {tmp_path / 't.csv'}",
    ):
        assert line in config
    assert "generator" not in config
    assert json.loads(done.stdout)["requests"]["arrived_requests"] == 1


def test_a_users_router_beside_the_study_is_found(tmp_path: Path, study: Path) -> None:
    (tmp_path / "my_router.py").write_text(
        "def always_last(request, replicas):\n    return replicas[-1].replica_id\n"
    )
    done = headway(
        tmp_path, "run", str(study), "--no-plots", "--json",
        "--replicas", "3", "--set", "router=my_router:always_last",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    per_replica = [r["requests"] for r in json.loads(done.stdout)["replicas"]]
    assert per_replica == [0, 0, 40]


def test_a_router_cannot_read_true_output_lengths(tmp_path: Path, study: Path) -> None:
    (tmp_path / "peeker.py").write_text(
        "def peek(request, replicas):\n    return request.num_output_tokens % len(replicas)\n"
    )
    done = headway(
        tmp_path, "run", str(study), "--no-plots", "--replicas", "2", "--set", "router=peeker:peek"
    )
    assert done.returncode != 0
    assert "num_output_tokens" in done.stderr


def test_the_same_study_gives_the_same_bytes_under_another_hash_seed(
    tmp_path: Path, study: Path
) -> None:
    for hash_seed in ("1", "2"):
        subprocess.run(
            [*HEADWAY, "run", str(study), "--out", hash_seed],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        )
    assert run_bytes(tmp_path / "1") == run_bytes(tmp_path / "2")


TINY_POOL = ("--set", "engine.num_gpu_blocks=3")

BAD_INPUT = [
    (("run", "missing.yaml"), "missing.yaml: there is no such study file"),
    (("run", "empty.yaml"), "empty.yaml: the study file is empty"),
    (("run", "broken.yaml"), "that begins at line 2, column 9"),
    (("run", "small.yaml", "--trace", "missing.csv"), "missing.csv"),
    (("run", "small.yaml", "--trace", "empty.csv"), "empty.csv"),
    (("run", "small.yaml", "--trace", "header.csv"), "header.csv"),
    (("run", "small.yaml", "--trace", "text.csv"), "text.csv"),
    (("run", "small.yaml", "--set", "engine.max_num_sequences=8"), "did you mean 'max_num_seqs'"),
    (("run", "small.yaml", "--set", "engine.max_num_seqs=many"), "'many' is not an integer"),
    (("run", "small.yaml", "--set", "engine"), "it must be key=value"),
    (("run", "small.yaml", "--model", "llama-3.1-8bb"), "did you mean 'llama-3.1-8b'"),
    (("run", "small.yaml", "--model", "llama-3.1-70b"), "does not fit"),
    (("run", "small.yaml", "--hardware", "h1000"), "did you mean 'h100"),
    (("run", "small.yaml", "--set", "router=rond-robin"), "did you mean 'round-robin'"),
    (("run", "small.yaml", "--set", "router=nowhere:R"), "module 'nowhere' can't be imported"),
    (("run", "small.yaml", "--replicas", "0"), "it must be at least 1"),
    (("run", "small.yaml", "--replicas", "two"), "--replicas"),
    (
        ("run", "small.yaml", "--set", "engine.max_num_batched_tokens=64",
         "--set", "engine.max_num_seqs=128"),
        "max_num_batched_tokens (64) is below max_num_seqs (128)",
    ),
    (("run", "small.yaml", *TINY_POOL), "blocks, the pool has 2"),
    (("run", "small.yaml", "--set", "engine.max_model_len=8"), "max_model_len is 8"),
    (("run", "small.yaml", "--out", "empty.yaml"), "is a file; name a folder"),
    (("run", "small.yaml", "--out", "/proc/headway-run"), "can't be written"),
    (("run", "small.yaml", "--overwrite"), "--overwrite needs --out"),
    (("run", "--modle", "x"), "--model"),
    (("rnu",), "run"),
    (("check", "missing"), "missing"),
    (("conformance", "replay", "missing.jsonl"), "missing.jsonl"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "said"), BAD_INPUT, ids=[" ".join(a) for a, _ in BAD_INPUT])
def test_bad_input_is_one_clear_line_and_exit_code_2(
    tmp_path: Path, study: Path, arguments: tuple[str, ...], said: str
) -> None:
    header = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    (tmp_path / "empty.yaml").touch()
    (tmp_path / "broken.yaml").write_text("name: x\nengine: [1\n")
    (tmp_path / "empty.csv").touch()
    (tmp_path / "header.csv").write_text("TIMESTAMP,ContextToken,GeneratedTokens\n")
    (tmp_path / "text.csv").write_text(header + "2023-11-16 18:15:46.6805900,many,44\n")
    done = headway(tmp_path, *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("headway: ")
    assert said in lines[0]
    assert not (tmp_path / "runs").exists()


def test_requests_that_cannot_fit_are_counted_beside_those_that_ran(
    tmp_path: Path, study: Path
) -> None:
    done = headway(
        tmp_path, "run", str(study), "--no-plots", "--json", "--set", "engine.max_model_len=220"
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    counts = summary["requests"]
    assert counts["rejected_requests"] > 0
    assert counts["finished_requests"] + counts["rejected_requests"] == 40
    (said,) = [warning for warning in summary["run"]["warnings"] if "rejected" in warning]
    assert said.startswith(
        f"{counts['rejected_requests']} of 40 requests were rejected at arrival, being longer than "
        "max_model_len, and are in no latency or throughput: request "
    )
    assert "max_model_len is 220" in said
    assert said.endswith("; llama-3.1-8b takes engine.max_model_len up to 131072")


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("engine.max_model_len=2", "longer than max_model_len, .* max_model_len is 2"),
        ("engine.num_gpu_blocks=2", r"larger than the KV pool, .* blocks, the pool has 1"),
    ],
)
def test_a_run_in_which_nothing_fits_is_refused_and_names_requests(
    tmp_path: Path, study: Path, setting: str, reason: str
) -> None:
    done = headway(tmp_path, "run", str(study), "--no-plots", "--set", setting, "--out", "none")
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    begins = "headway: none of 40 requests can run: .*40 of 40 requests were rejected"
    assert re.match(f"{begins}.* being {reason}", last), last
    assert re.search(r"request 0 .*; request 1 .*; request 2 ", last)
    assert not (tmp_path / "none").exists()


INTERRUPTING_ROUTER = """
import os, signal

class Interrupting:
    seen = 0

    def route(self, request, replicas):
        self.seen += 1
        if self.seen == 25:
            os.kill(os.getpid(), signal.SIGNAL)
        return replicas[self.seen % len(replicas)].replica_id
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_interrupt_keeps_partial_results_marked_as_such(
    tmp_path: Path, study: Path, name: str
) -> None:
    (tmp_path / "ctrl_c.py").write_text(INTERRUPTING_ROUTER.replace("SIGNAL", name))
    done = headway(
        tmp_path, "run", str(study), "--out", "part",
        "--replicas", "2", "--set", "router=ctrl_c:Interrupting",
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert "PARTIAL" in done.stdout
    assert "Traceback" not in done.stderr
    assert "headway: interrupted; partial results are in part, marked as such" in done.stderr
    summary = json.loads((tmp_path / "part" / "summary.json").read_text())
    assert summary["run"]["partial"] is True
    counts = summary["requests"]
    assert counts["arrived_requests"] == 25
    assert counts["finished_requests"] + counts["unfinished_requests"] == 25
    assert headway(tmp_path, "check", "part").returncode == 0


def test_until_stops_with_requests_unfinished(tmp_path: Path, study: Path) -> None:
    done = headway(tmp_path, "run", str(study), "--no-plots", "--json", "--set", "until_s=0.5")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["requests"]["unfinished_requests"] > 0
    assert summary["run"]["partial"] is False


def test_a_closed_loop_runs_its_rounds(tmp_path: Path, study: Path) -> None:
    done = headway(
        tmp_path, "run", str(study), "--no-plots", "--json",
        "--set", "load={mode: closed, concurrency: 4, rounds: 5, client_delay_s: 0.1}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["requests"]["finished_requests"] == 20
    assert headway(tmp_path, "check", "runs/small").returncode == 0


def test_a_closed_loop_without_rounds_serves_the_whole_trace(tmp_path: Path, study: Path) -> None:
    done = headway(
        tmp_path, "run", str(study), "--no-plots", "--json",
        "--set", "load={mode: closed, concurrency: 7}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["requests"]["finished_requests"] == 40


FAULTY = """
def boom(request, *replicas):
    return request.no_such_thing
"""


@pytest.mark.parametrize("key", ["router", "engine.scheduling_policy"])
def test_a_policy_that_fails_is_named_with_its_place(tmp_path: Path, study: Path, key: str) -> None:
    (tmp_path / "mine.py").write_text(FAULTY)
    done = headway(
        tmp_path, "run", str(study), "--no-plots", "--replicas", "2", "--set", f"{key}=mine:boom"
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "'mine:boom' failed for request 0: AttributeError" in line
    assert "mine.py, line 3" in line


def test_what_it_was_started_to_ignore_is_ignored(tmp_path: Path, study: Path) -> None:
    (tmp_path / "ctrl_c.py").write_text(INTERRUPTING_ROUTER.replace("SIGNAL", "SIGTERM"))
    command = f"trap '' TERM; exec {' '.join(HEADWAY)} run {study} --no-plots --replicas 2"
    done = subprocess.run(
        f"{command} --set router=ctrl_c:Interrupting",
        shell=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_second_signal_while_the_process_ends_is_not_told_of(
    tmp_path: Path, study: Path, name: str
) -> None:
    """The second comes when Python takes itself down, where an interrupt can't be caught."""
    at_exit = "import atexit\natexit.register(lambda: os.kill(os.getpid(), signal.SIGNAL))\n"
    module = (INTERRUPTING_ROUTER + at_exit).replace("SIGNAL", name)
    (tmp_path / "ctrl_c.py").write_text(module)
    done = headway(
        tmp_path, "run", str(study), "--out", "part", "--no-plots",
        "--replicas", "2", "--set", "router=ctrl_c:Interrupting",
    )  # fmt: skip
    assert done.returncode == 130
    assert done.stderr.endswith("partial results are in part, marked as such\n")
    assert "PARTIAL" in done.stdout


CLEANS_UP = """
import signal, time
from sim.cli.interrupt import hear_others_as_ctrl_c

hear_others_as_ctrl_c()
for wait_s in (0.0, 0.35):
    try:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            time.sleep(wait_s)
            signal.raise_signal(signal.SIGTERM)
            print("cleaned up after", wait_s)
    except KeyboardInterrupt:
        time.sleep(0.35)
"""


def test_a_signal_just_after_the_first_does_not_disturb_the_cleaning_up() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLEANS_UP],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=hear_signals,
    )
    assert done.stdout == "cleaned up after 0.0\n"


def test_two_signals_at_once_are_one_interrupt() -> None:
    with interrupt_flag() as is_interrupted:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        assert is_interrupted()
        time.sleep(0.35)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


def test_a_reader_that_leaves_early_sees_no_traceback(tmp_path: Path, study: Path) -> None:
    done = subprocess.run(
        f"{' '.join(HEADWAY)} run {study} --no-plots | head -n 1",
        shell=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Latency" in done.stdout
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_progress_is_drawn_on_a_terminal_with_time_requests_and_speed(tmp_path: Path) -> None:
    """A pseudo-terminal stands for the user's; the table still goes to stdout alone."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*HEADWAY, "run", "--no-plots", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), "TERM": "xterm", "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=slave,
    )
    os.close(slave)
    drawn = b""
    try:
        while chunk := os.read(master, 65536):
            drawn += chunk
    except OSError:  # Linux says so when the other end is closed
        pass
    out, _ = process.communicate(timeout=60)
    os.close(master)
    assert process.returncode == 0
    assert re.search(rb"of 2,500 requests, [\d,]+ s simulated, [\d,]+ requests/s", drawn)
    json.loads(out)
