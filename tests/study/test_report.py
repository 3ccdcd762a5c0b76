"""The page: what it holds, and what a browser makes of it."""

import base64
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from sim.cli.app import run_app
from sim.config import resolve_study
from sim.report import html
from sim.result import save
from sim.simulation import simulate
from tests.study.studies import chat_study, queue_study, write_study

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
GRID = {
    "engine.max_num_seqs": [4, 32],
    "trace.rate_scale": [1.0, 4.0],
    "engine.tensor_parallel_size": [1, 3],
}


@pytest.fixture(scope="module")
def run_report(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "run"
    study = resolve_study(chat_study(120), "x")
    save(simulate(study), folder)
    assert run_app(["report", str(folder)]) == 0
    return folder / "report.html"


@pytest.fixture(scope="module")
def sweep_report(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    study = write_study(folder, {**chat_study(), "sweep": {"grid": GRID, "executor": "serial"}})
    run_app(["sweep", str(study), "--out", str(folder / "out")])
    assert run_app(["report", str(folder / "out")]) == 0
    return folder / "out" / "report.html"


@pytest.fixture(scope="module")
def capacity_report(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    study = write_study(folder, queue_study(150, 0.3))
    out = str(folder / "out")
    options = ("--grid", "hardware=h100,h200", "--accept-short", "--jobs", "1", "--out", out)
    assert run_app(["capacity", str(study), "--slo", "ttft_mean_s=3", *options]) == 0
    assert run_app(["report", out]) == 0
    return folder / "out" / "report.html"


def test_a_page_loads_nothing_from_anywhere(
    run_report, sweep_report, capacity_report, advice_report
):
    for path in (run_report, sweep_report, capacity_report, advice_report):
        text = path.read_text()
        sources = re.findall(r"""(?:src|href)=["']([^"']*)["']""", text)
        assert sources and all(source.startswith("data:") for source in sources)
        assert "http://" not in text and "@import" not in text and "url(" not in text


def test_a_run_s_page_has_figures_plots_and_warnings(run_report):
    text = run_report.read_text()
    assert "Not calibrated" in text
    assert text.count("data:image/png;base64,") == 4
    for words in ("TTFT", "block means", "Slowest requests", "config.yaml", "Throughput"):
        assert words in text
    summary = json.loads((run_report.parent / "summary.json").read_text())
    assert repr(summary["latency"]["ttft_s"]["p99"]) in text


def test_a_sweep_s_page_has_a_row_a_point_and_its_failures(sweep_report):
    text = sweep_report.read_text()
    assert len(re.findall(r"<tr><td", text)) == 8
    assert "4 of 8 points failed" in text
    assert "failed: " in text


def test_one_is_not_said_as_many(tmp_path):
    """Of two points one is overloaded (a request at a time), the other fails (3 GPUs a replica)."""
    grid = {"engine.tensor_parallel_size": [1, 3]}
    engine = {"max_num_seqs": 1}
    values = chat_study(120, engine=engine, sweep={"grid": grid, "executor": "serial"})
    study, out = write_study(tmp_path, values), tmp_path / "out"
    run_app(["sweep", str(study), "--out", str(out)])
    assert run_app(["report", str(out)]) == 0
    text = (out / "report.html").read_text()
    assert "1 of 2 points failed; its row says why" in text
    assert "1 point is saturated: its latencies grow" in text
    assert not re.search(r"\b1 (points|requests|rows)\b", text)


def test_text_of_a_study_is_never_markup(tmp_path):

    page = html.table(["<b>"], [["<script>alert(1)</script>"]])
    assert "<script>" not in page and "<b>" not in page


def test_a_comparison_s_page(tmp_path):
    study = write_study(tmp_path, chat_study(60))
    out = str(tmp_path / "out")
    options = ("--seeds", "2", "--jobs", "1", "--out", out)
    run_app(["compare", str(study), "--key", "engine.max_num_seqs=256,2", *options])
    assert run_app(["report", out]) == 0
    text = (tmp_path / "out" / "report.html").read_text()
    assert "Queue time mean higher by" in text and "data:image/png;base64," in text


@pytest.fixture(scope="module")
def advice_report(tmp_path_factory) -> Path:
    """One request at a time can't keep up on one replica, so a setting is left out."""
    folder = tmp_path_factory.mktemp("report")
    study, out = write_study(folder, chat_study(60)), str(folder / "out")
    grid = ("--grid", "replicas=1,2", "--grid", "engine.max_num_seqs=1,64")
    assert run_app(["advise", str(study), *grid, "--jobs", "1", "--out", out]) == 0
    assert run_app(["report", out]) == 0
    return folder / "out" / "report.html"


def test_an_advice_s_page_has_the_advised_settings_before_the_sweep_s_table(advice_report):
    text, folder = advice_report.read_text(), advice_report.parent
    found = json.loads((folder / "advice.json").read_text())
    assert found["advices"] and found["left_out"]
    before, after = text.split("<h2>Points</h2>")
    for one in found["advices"]:
        assert (folder / one["study"]).is_file() and one["study"] in before
        assert html.text(one["setting"]) in before and html.text(one["limit"]) in before
        assert html.text(one["why"]) in before and repr(one["latency_s"]) in before
    for one in found["left_out"]:
        assert html.text(one["setting"]) in before and html.text(one["why"]) in before
    assert base64.b64encode((folder / "pareto.png").read_bytes()).decode() in before
    assert len(re.findall(r"<tr><td", after)) == 4


def test_a_page_of_no_advice_says_so(tmp_path):
    """Twice the load that a queue can bear: every setting is overloaded."""
    study, out = write_study(tmp_path, queue_study(300, 2.0)), str(tmp_path / "out")
    assert run_app(["advise", str(study), "--grid", "seed=1,2", "--jobs", "1", "--out", out]) == 1
    assert run_app(["report", out]) == 0
    text = (tmp_path / "out" / "report.html").read_text()
    assert "None: every setting is left out" in text and "more arrives than it serves" in text


def test_a_folder_swept_by_another_plan_has_no_advice_of_the_old_one(tmp_path):
    study, out = write_study(tmp_path, chat_study(30)), tmp_path / "out"
    grid = ("--grid", "engine.max_num_seqs=1,64", "--jobs", "1", "--out", str(out))
    assert run_app(["advise", str(study), *grid]) == 0
    assert run_app(["sweep", str(study), *grid]) == 0
    assert (out / "advice.json").exists()
    assert run_app(["sweep", str(study), "--set", "engine.block_size=32", *grid]) == 0
    assert not (out / "advice.json").exists()
    assert run_app(["report", str(out)]) == 0
    assert "Advised settings" not in (out / "report.html").read_text()


def test_a_capacity_answer_s_page_has_every_probe(capacity_report):
    text = capacity_report.read_text()
    probes = pd.read_csv(capacity_report.parent / "probes.csv")
    answers = pd.read_csv(capacity_report.parent / "capacity.csv")
    # Rows of three tables: answers, searches (one each here) and probes.
    assert len(re.findall(r"<tr><td", text)) == 2 * len(answers) + len(probes)
    assert "Largest rate with TTFT mean at most 3 s" in text
    assert (
        "Not calibrated" in text and "the error of step times: the cost model is constant" in text
    )
    assert all(repr(float(value)) in text for value in answers["value"])
    assert text.count("data:image/png;base64,") == 1


def test_a_capacity_answer_that_is_not_whole_is_refused(tmp_path, capacity_report, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(capacity_report.parent, copy)
    (copy / "capacity.json").write_text('{"kind": "rate"}')
    assert run_app(["report", str(copy)]) == 2
    assert "is not whole" in capsys.readouterr().err
    (copy / "capacity.json").write_text("{")
    assert run_app(["report", str(copy)]) == 2
    assert "can't be read as JSON" in capsys.readouterr().err


def test_a_folder_of_something_else_is_refused(tmp_path, capsys):
    assert run_app(["report", str(tmp_path)]) == 2
    assert "is no folder of any kind" in capsys.readouterr().err
    assert run_app(["report", str(tmp_path / "none")]) == 2


PROBE = """
<script>
window.addEventListener("load", () => {
  const numbers = table => table.tHead.querySelectorAll("th.n").length;
  const table = [...document.querySelectorAll("table.sorts")]
    .reduce((a, b) => numbers(b) > numbers(a) ? b : a);
  const head = table.tHead.rows[0].cells;
  const shown = cell => cell.dataset.v ?? cell.textContent;
  const column = i => [...table.tBodies[0].rows].map(r => shown(r.cells[i]));
  const out = {errors: window.seen, numeric: [],
    tables: document.querySelectorAll("table.sorts").length,
    images: [...document.images].every(i => i.complete && i.naturalWidth > 100)};
  for (let i = 0; i < head.length; i++) {
    if (!head[i].classList.contains("n")) continue;
    head[i].click(); const up = column(i);
    head[i].click(); const down = column(i);
    out.numeric.push([head[i].textContent, up, down, head[i].getAttribute("aria-sort")]);
  }
  document.title = "done";
  document.body.innerHTML = "";
  document.body.append(Object.assign(document.createElement("pre"),
    {id: "out", textContent: JSON.stringify(out)}));
});
</script></body>"""
WATCH = """<head><script>window.seen = [];
window.addEventListener("error", e => window.seen.push(String(e.message)));
const old = console.error; console.error = (...a) => { window.seen.push(a.join(" ")); old(...a); };
</script>"""


def chromium(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
             "--disable-background-networking", "--disable-component-update",
             f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=5000")  # fmt: skip
    return subprocess.run(
        [str(CHROMIUM), *flags, *arguments],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "HOME": str(folder)},
    )  # fmt: skip


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium to open the page in")
@pytest.mark.parametrize("kind", ["run_report", "sweep_report", "capacity_report", "advice_report"])
def test_a_browser_opens_it_without_errors_and_its_tables_sort(tmp_path, request, kind):
    text = request.getfixturevalue(kind).read_text()
    page = tmp_path / "page.html"
    page.write_text(text.replace("<head>", WATCH, 1).replace("</body>", PROBE))
    done = chromium(tmp_path, "--dump-dom", page.as_uri())
    found = re.search(r'<pre id="out">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    out = json.loads(found.group(1).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert out["errors"] == []
    assert out["images"] and out["tables"] >= 1
    assert len(out["numeric"]) >= 5
    for name, up, down, order in out["numeric"]:
        known = [float(v) for v in up if v]
        assert known == sorted(known), name
        assert [float(v) for v in down if v] == sorted(known, reverse=True), name
        assert up[len(known) :] == [""] * (len(up) - len(known)), "absent ones come last"
        assert order == "descending"


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium to print with")
def test_it_prints(tmp_path, run_report):
    target = tmp_path / "page.pdf"
    chromium(tmp_path, f"--print-to-pdf={target}", "--no-pdf-header-footer", run_report.as_uri())
    assert target.read_bytes()[:5] == b"%PDF-"
    assert target.stat().st_size > 50_000
