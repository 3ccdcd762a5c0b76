"""Every recorded case without drafts and LoRA is replayed on the compiled core."""

from __future__ import annotations

import pytest

from sim._core import native
from sim.conformance import Case, first_difference, replay_case
from tests.compiled.stepped_core import core_of
from tests.parity.case_files import FAMILIES_OF, FILES, cases_by_family

pytestmark = pytest.mark.skipif(native is None, reason="the compiled core is not built here")

FAMILIES = [(file, family) for file, families in FAMILIES_OF.items() for family in families]


def is_covered(case: Case) -> bool:
    config = case["config"]
    return not config.get("num_speculative_tokens") and not config.get("max_loras")


@pytest.mark.parametrize(("file", "family"), FAMILIES)
def test_every_step_of_a_family_is_identical(file: str, family: str) -> None:
    if not FILES[file].exists():
        pytest.skip(f"{FILES[file].name} is not there")
    cases = [case for case in cases_by_family(file)[family] if is_covered(case)]
    if not cases:
        pytest.skip("all its cases have drafts or adapters")
    found = {c["name"]: first_difference(c["steps"], replay_case(c, core_of(c))) for c in cases}
    assert {name: difference for name, difference in found.items() if difference} == {}
