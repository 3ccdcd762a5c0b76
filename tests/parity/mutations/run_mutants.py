"""Applies every wrong rule in turn and names the case that catches it.

    python tests/parity/mutations/run_mutants.py [WORDS_OF_A_RULE]

Exits 1 if one is not caught, or does not apply any more.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mutants import LEDGER, MUTANTS, Mutant

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

TIMEOUT_S = 600
# What the replay imports.
PARTS = ("scheduler", "conformance", "vllm_adapter", "__init__.py", "errors.py", "rng.py")


def try_mutant(mutant: Mutant) -> str:
    """What became of a wrong rule: `caught: ...`, `SURVIVED` or `DOES NOT APPLY`."""
    with tempfile.TemporaryDirectory() as folder:
        copy_sim(Path(folder) / "sim")
        target = Path(folder) / "sim" / mutant.file
        text = target.read_text()
        if text.count(mutant.old) != 1:
            return f"DOES NOT APPLY: found {text.count(mutant.old)} times"
        target.write_text(text.replace(mutant.old, mutant.new))
        return replay(folder, "ledger" if mutant.file == LEDGER else "manager")


def copy_sim(target: Path) -> None:
    target.mkdir()
    for part in PARTS:
        source = ROOT / "sim" / part
        if source.is_dir():
            shutil.copytree(source, target / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target / part)


def replay(folder: str, kv_cache: str) -> str:
    files = sorted(str(path) for path in HERE.parent.glob("*.jsonl.gz"))
    command = [sys.executable, str(HERE / "try_mutant.py"), folder, kv_cache, *files]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"caught: no end within {TIMEOUT_S} s"
    if done.returncode == 0:
        return "SURVIVED"
    return f"caught: {done.stdout.strip() or done.stderr.strip().splitlines()[-1]}"


def main(words: str) -> int:
    outcomes = []
    for mutant in MUTANTS:
        if words in mutant.rule:
            outcomes.append(try_mutant(mutant))
            print(f"{mutant.rule} | {outcomes[-1]}", flush=True)
    caught = sum(outcome.startswith("caught") for outcome in outcomes)
    print(f"{caught} of {len(outcomes)} caught")
    return 0 if caught == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
