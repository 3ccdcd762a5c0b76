"""The recorded cases that lie beside this file."""

from collections import defaultdict
from functools import cache
from pathlib import Path

from sim.conformance import Case, family_of, read_cases
from sim.conformance.families import FAMILIES

HERE = Path(__file__).parent
# cases.jsonl.gz: the 485 given ones; more.jsonl.gz: recorded with `headway conformance record`.
FILES = {"given": HERE / "cases.jsonl.gz", "more": HERE / "more.jsonl.gz"}
_NUM_GIVEN_FAMILIES = 25
_NAMES = list(FAMILIES)
FAMILIES_OF = {
    "given": _NAMES[:_NUM_GIVEN_FAMILIES],
    # The edges were made by hand, where a wrong rule survived all others.
    "more": [*_NAMES[_NUM_GIVEN_FAMILIES:], "spec_edge", "turns_edge", "nochunk_edge"],
}


@cache
def cases_by_family(file: str) -> dict[str, list[Case]]:
    """Family -> its cases."""
    families: dict[str, list[Case]] = defaultdict(list)
    for case in read_cases(FILES[file]):
        families[family_of(case["name"])].append(case)
    return dict(families)
