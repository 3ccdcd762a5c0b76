"""Prompts in arrays are the prompts that were put in."""

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from traces import Prompt, PromptTable
from traces.labels import Labels

IDS = st.integers(-(2**63), 2**63 - 1) | st.text(max_size=3)
PROMPTS = st.lists(st.lists(st.tuples(IDS, st.integers(1, 9)), max_size=4).map(tuple), max_size=6)


def content(table: PromptTable) -> bytes:
    return b"".join(table.content_bytes())


@given(prompts=PROMPTS, start=st.integers(-7, 7), stop=st.integers(-7, 7))
def test_rows_come_back(prompts: list[Prompt], start: int, stop: int) -> None:
    table = PromptTable.from_prompts(prompts)
    assert list(table) == prompts
    assert table[start:stop] == prompts[start:stop]
    assert [table[i] for i in range(len(table))] == prompts
    assert table.num_tokens.tolist() == [sum(n for _, n in prompt) for prompt in prompts]
    assert list(pickle.loads(pickle.dumps(table))) == prompts


@given(one=PROMPTS, other=PROMPTS, seed=st.integers(0, 9))
def test_joining_and_taking_keep_content(one: list[Prompt], other: list[Prompt], seed: int) -> None:
    joined = PromptTable.concatenate([PromptTable.from_prompts(each) for each in (one, other)])
    both = one + other
    assert list(joined) == both
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(both))
    taken = joined.take(order)
    assert list(taken) == [both[i] for i in order]
    assert content(taken) == content(PromptTable.from_prompts([both[i] for i in order]))
    assert list(joined.take(order[:0])) == []


@given(values=st.lists(st.none() | st.text(max_size=2), max_size=8))
def test_labels_come_back(values: list[str | None]) -> None:
    labels = Labels.from_values(values)
    assert list(labels) == values
    assert list(Labels.concatenate([labels, labels])) == values + values
    assert list(labels.take(np.arange(len(values))[::-1])) == values[::-1]


def test_segments_are_cheap() -> None:
    table = PromptTable.from_prompts([tuple((i, 512) for i in range(250))] * 100)
    arrays = (table.offsets, table.ids, table.lengths, table.is_text)
    assert sum(array.nbytes for array in arrays) < 18 * 25_000
