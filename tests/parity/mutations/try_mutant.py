"""Replays the recorded cases on the scheduler found in a folder until one differs.

    python try_mutant.py FOLDER_WITH_SIM (manager|ledger) CASE_FILE...

Prints `name: difference` and exits 1, or exits 0 if all are identical.
"""

import sys

sys.path.insert(0, sys.argv[1])

from itertools import chain, zip_longest
from pathlib import Path

from sim.conformance import family_of, first_difference, read_cases, replay_case
from sim.scheduler.async_scheduler import AsyncScheduler, create_scheduler
from sim.scheduler.kv_ledger import KVLedger
from sim.scheduler.scheduler import Scheduler


def on_ledger(config, cache):
    kind = AsyncScheduler if config.async_scheduling else Scheduler
    return kind(config, cache, KVLedger(cache, config))


def in_turns(cases):
    """One case of every family, then another: most wrong rules show at once."""
    families = {}
    for case in sorted(cases, key=lambda case: len(case["steps"])):
        families.setdefault(family_of(case["name"]), []).append(case)
    return [c for turn in zip_longest(*families.values()) for c in turn if c is not None]


def difference(case, make_scheduler):
    try:
        steps = replay_case(case, make_scheduler, max_idle_iterations=500)
    except Exception as error:  # a wrong rule may break anything
        return f"{type(error).__name__}: {error}"
    return first_difference(case["steps"], steps)


def main():
    make_scheduler = on_ledger if sys.argv[2] == "ledger" else create_scheduler
    cases = chain.from_iterable(read_cases(Path(name)) for name in sys.argv[3:])
    for case in in_turns(cases):
        found = difference(case, make_scheduler)
        if found:
            print(f"{case['name']}: {found}"[:160])
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
