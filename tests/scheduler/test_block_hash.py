"""Equal prefix <-> equal hash, against content written out token by token."""

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from sim.scheduler.block_hash import ContentHashes, output_segment, own_segment
from sim.scheduler.request import Request

segment_ids = st.one_of(st.integers(0, 2), st.sampled_from(["a", "0", "1", "out:7"]))
prompts = st.lists(st.tuples(segment_ids, st.integers(0, 9)), max_size=5).map(tuple)
contents = st.tuples(prompts, st.sampled_from(["out:7", "out:8"]), st.integers(0, 1))
NUM_OUTPUTS = 12


def tokens_of(content) -> list[tuple]:
    """Every token as (segment, position in it): equal exactly if it is the same token."""
    prompt, output, _ = content
    pieces = [(segment, i) for segment, n in prompt for i in range(n)]
    return pieces + [(output, i) for i in range(NUM_OUTPUTS)]


def same_prefix(one, other, length: int) -> bool:
    """Same adapter, same tokens, cut into segments at the same places or not."""
    return one[2] == other[2] and pieces(one, length) == pieces(other, length)


def pieces(content, length: int) -> list[tuple]:
    """The prefix as it is read: runs of one segment, each from that segment's start."""
    runs: list[list] = []
    for segment, position in tokens_of(content)[:length]:
        if position == 0:
            runs.append([segment, 0])
        runs[-1][1] += 1
    return [tuple(run) for run in runs]


@given(contents, contents, st.integers(1, NUM_OUTPUTS))
def test_prefixes_are_equal_exactly_if_their_hashes_are(one, other, length):
    hashes = [ContentHashes(*content).prefix_hash(length) for content in (one, other)]
    assert (hashes[0] == hashes[1]) == same_prefix(one, other, length)


@given(contents, contents, st.integers(1, 5))
def test_block_hashes_agree_as_long_as_content_does(one, other, block_size):
    num_blocks = NUM_OUTPUTS // block_size
    hashes = [ContentHashes(*c).block_hashes(0, num_blocks, block_size) for c in (one, other)]
    for index in range(num_blocks):
        equal = same_prefix(one, other, (index + 1) * block_size)
        assert (hashes[0][index] == hashes[1][index]) == equal


@given(contents, st.integers(1, 4), st.integers(0, 4), st.integers(0, 4))
def test_a_range_of_blocks_is_a_slice_of_all(content, block_size, first, more):
    hashes = ContentHashes(*content)
    end = min(first + more, NUM_OUTPUTS // block_size)
    everything = hashes.block_hashes(0, NUM_OUTPUTS // block_size, block_size)
    assert hashes.block_hashes(first, end, block_size) == everything[first:end]
    assert everything == [
        hashes.prefix_hash((i + 1) * block_size) for i in range(NUM_OUTPUTS // block_size)
    ]


def test_only_the_last_block_alike_is_no_match():
    one = ContentHashes(((1, 16), (9, 16)), "out:1")
    other = ContentHashes(((2, 16), (9, 16)), "out:2")
    assert one.block_hashes(0, 2, 16)[1] != other.block_hashes(0, 2, 16)[1]


def test_the_next_turn_finds_what_the_last_one_generated():
    first = Request(1, 20, 40, prompt=((5, 20),))
    second = Request(2, 60, 5, prompt=((5, 20), (output_segment(1), 30), (6, 10)))
    hits = zip(
        first.content.block_hashes(0, 3, 16), second.content.block_hashes(0, 3, 16), strict=True
    )
    assert [a == b for a, b in hits] == [True, True, True]


def test_content_of_its_own_is_shared_with_nobody():
    hashes = {Request(i, 16, 1).content.prefix_hash(16) for i in range(50)}
    assert len(hashes) == 50
    assert own_segment(1) != output_segment(1)


def test_hashes_do_not_depend_on_the_process():
    code = (
        "from sim.scheduler.block_hash import ContentHashes;"
        "print(ContentHashes(((3, 7), ('a', 9)), 'out:4', 2).prefix_hash(20))"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(answers) == 1
