"""Every recorded case is replayed, step by step, with identical decisions."""

import pytest

from sim.conformance import Case, first_difference, replay_case
from sim.conformance.replay import Replay
from sim.scheduler.async_scheduler import AsyncScheduler, create_scheduler
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.scheduler.kv_ledger import KVLedger
from sim.scheduler.scheduler import Scheduler
from tests.parity.case_files import FAMILIES_OF, FILES, cases_by_family
from tests.parity.stepped_leap import SteppedLeap

FAMILIES = [(file, family) for file, families in FAMILIES_OF.items() for family in families]


def ledger_scheduler(config: SchedulerConfig, cache: CacheConfig) -> Scheduler:
    kind = AsyncScheduler if config.async_scheduling else Scheduler
    return kind(config, cache, KVLedger(cache, config))


def differences(cases: list[Case], make_scheduler) -> list[str]:
    found = {}
    for case in cases:
        found[case["name"]] = first_difference(case["steps"], replay_case(case, make_scheduler))
    return [f"{name}: {difference}" for name, difference in found.items() if difference]


@pytest.mark.parametrize(("file", "family"), FAMILIES)
def test_every_step_of_a_family_is_identical(file, family):
    cases = cases_by_family(file)[family]
    assert cases
    assert differences(cases, create_scheduler) == []


@pytest.mark.parametrize(("file", "family"), FAMILIES)
def test_the_ledger_decides_the_same(file, family):
    """Every fourth case: tests/scheduler compares both KV caches rule by rule."""
    assert differences(cases_by_family(file)[family][::4], ledger_scheduler) == []


@pytest.mark.parametrize(("file", "family"), FAMILIES)
def test_steady_decodes_as_sums_decide_the_same(file, family):
    """Every second case, through the scheduler that leaps are made of; it also uses the ledger."""
    assert differences(cases_by_family(file)[family][1::2], SteppedLeap) == []


def test_most_decodes_are_sums():
    """The fast path is what was compared above, not the inherited code it falls back to."""
    for case in cases_by_family("given")["basic"]:
        replay = Replay(case, SteppedLeap)
        rows = replay.run()
        num_scheduled = sum(len(row.get("scheduled", ())) for row in rows)
        assert replay.scheduler.num_grouped > num_scheduled / 2


@pytest.mark.parametrize("file", FILES)
def test_no_family_of_a_file_is_left_out(file):
    assert set(cases_by_family(file)) == set(FAMILIES_OF[file])


def test_the_given_cases_are_all_there():
    families = cases_by_family("given")
    assert sum(map(len, families.values())) == 485
    assert {family: len(cases) for family, cases in families.items() if len(cases) != 20} == {
        "wide": 5
    }


def test_a_changed_decision_is_found():
    case = cases_by_family("given")["basic"][0]
    first = {**case["steps"][0], "free_blocks": case["steps"][0]["free_blocks"] + 1}
    changed = {**case, "steps": [first, *case["steps"][1:]]}
    assert len(differences([changed], create_scheduler)) == 1
