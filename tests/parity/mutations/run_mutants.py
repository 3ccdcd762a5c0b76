"""Applies every wrong rule in turn and names the case that catches it.

    python tests/parity/mutations/run_mutants.py [WORDS_OF_A_RULE]

Each rule is tried in a process of its own, forked after the cases were read, on a copy of the
scheduler. Exits 1 if one is not caught, or does not apply any more.
"""

# ruff: noqa: PLC0415 -- the scheduler is imported from where the rule was applied
import gzip
import json
import multiprocessing
import shutil
import sys
import tempfile
from itertools import zip_longest
from pathlib import Path

from mutants import LEDGER, MUTANTS, Mutant

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
TIMEOUT_S = 600
# What the replay imports.
PARTS = ("scheduler", "conformance", "vllm_adapter", "__init__.py", "errors.py", "rng.py")


def read_in_turns() -> list[dict]:
    """All recorded cases: one of every family, then another; most wrong rules show at once."""
    families: dict[str, list[dict]] = {}
    for path in sorted(HERE.parent.glob("*.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            for case in map(json.loads, lines):
                families.setdefault(case["name"].split("-")[0], []).append(case)
    for cases in families.values():
        cases.sort(key=lambda case: len(case["steps"]))
    return [c for turn in zip_longest(*families.values()) for c in turn if c is not None]


def try_mutant(mutant: Mutant, cases: list[dict]) -> str:
    """What became of a wrong rule: `caught: ...`, `SURVIVED` or `DOES NOT APPLY`."""
    with tempfile.TemporaryDirectory() as folder:
        copy_sim(Path(folder) / "sim")
        target = Path(folder) / "sim" / mutant.file
        text = target.read_text()
        if text.count(mutant.old) != 1:
            return f"DOES NOT APPLY: found {text.count(mutant.old)} times"
        target.write_text(text.replace(mutant.old, mutant.new))
        return in_process(folder, mutant.file == LEDGER, cases)


def copy_sim(target: Path) -> None:
    target.mkdir()
    for part in PARTS:
        source = ROOT / "sim" / part
        if source.is_dir():
            shutil.copytree(source, target / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target / part)


def in_process(folder: str, on_ledger: bool, cases: list[dict]) -> str:
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    process = context.Process(target=replay, args=(folder, on_ledger, cases, answers))
    process.start()
    process.join(TIMEOUT_S)
    if process.is_alive():
        process.kill()
        return f"caught: no end within {TIMEOUT_S} s"
    return answers.get() if not answers.empty() else "caught: the replay died"


def replay(folder: str, on_ledger: bool, cases: list[dict], answers) -> None:
    """Replay on the scheduler that lies in `folder` until a case differs."""
    sys.path.insert(0, folder)
    from sim.conformance import first_difference, replay_case
    from sim.scheduler.async_scheduler import AsyncScheduler, create_scheduler
    from sim.scheduler.kv_ledger import KVLedger
    from sim.scheduler.scheduler import Scheduler

    def create_on_ledger(config, cache):
        kind = AsyncScheduler if config.async_scheduling else Scheduler
        return kind(config, cache, KVLedger(cache, config))

    make_scheduler = create_on_ledger if on_ledger else create_scheduler
    for case in cases:
        try:
            steps = replay_case(case, make_scheduler, max_idle_iterations=500)
            found = first_difference(case["steps"], steps)
        except Exception as error:  # a wrong rule may break anything
            found = f"{type(error).__name__}: {error}"
        if found:
            answers.put(f"caught: {case['name']}: {found}"[:160])
            return
    answers.put("SURVIVED")


def main(words: str) -> int:
    cases = read_in_turns()
    outcomes = []
    for mutant in MUTANTS:
        if words in mutant.rule:
            outcomes.append(try_mutant(mutant, cases))
            print(f"{mutant.rule} | {outcomes[-1]}", flush=True)
    caught = sum(outcome.startswith("caught") for outcome in outcomes)
    print(f"{caught} of {len(outcomes)} caught")
    return 0 if caught == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
