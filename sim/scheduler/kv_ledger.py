"""The KV cache as run-length books: the decisions of `KVCacheManager`, without its blocks.

Which physical block a request gets never changes a decision; only two things do: how many blocks
are free, and which content can still be found. So a block without a hash needs no identity: it is
a count. And the free queue always reads

    blocks without a hash, then blocks with one, oldest first

(freed blocks without a hash go to its front, those with one to its back, and allocation takes
from the front), so it is a number and a list. Findable blocks come in runs: consecutive blocks of
one piece of content (`ContentHashes.extents`), held by the same requests. A request gives its
blocks back last one first, hence a free run is reused from its end, and what is left of it is
still a run. Allocation, hits and freeing so cost by runs, not by blocks; a run is split where a
hit takes a part of it.

The property test in tests/scheduler compares both managers on random workloads, and every
conformance case is replayed on both.
"""

from __future__ import annotations

from collections.abc import Iterable

from sim.scheduler.block_hash import BlockHash
from sim.scheduler.block_pool import BlockPoolError
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.scheduler.request import Request, RequestStatus


class _Run:
    """Blocks `lo` to `hi` (exclusive) of the piece `base`, all held by the same `ref_cnt` requests.

    `sibling` is the run split off its end last: holders of the whole find the rest there.
    `older` and `newer` link the free runs.
    """

    __slots__ = ("base", "hi", "lo", "newer", "older", "ref_cnt", "sibling")

    def __init__(self, base: BlockHash, lo: int, hi: int, ref_cnt: int) -> None:
        self.base = base
        self.lo = lo
        self.hi = hi
        self.ref_cnt = ref_cnt
        self.sibling: _Run | None = None
        self.older: _Run = self
        self.newer: _Run = self


_Extent = tuple[_Run, int, int]


class LedgerHit:
    """Cached blocks that begin a request, as extents of runs; its length counts the blocks."""

    __slots__ = ("extents", "num_blocks")

    def __init__(self, extents: list[_Extent]) -> None:
        self.extents = extents
        self.num_blocks = sum(hi - lo for _, lo, hi in extents)

    def __len__(self) -> int:
        return self.num_blocks


class _Holding:
    """What one request holds: `num_blocks` in all, the first `num_cached` of them in `runs`.

    An entry `(run, end)` covers the run up to block `end`, across runs split off it since.
    """

    __slots__ = ("num_blocks", "num_cached", "runs")

    def __init__(self) -> None:
        self.num_blocks = 0
        self.num_cached = 0
        self.runs: list[tuple[_Run, int]] = []

    def split_runs(self) -> list[_Run]:
        """The runs that it holds now, in the order of its tokens."""
        runs: list[_Run] = []
        for first, end in self.runs:
            run = first
            runs.append(run)
            while run.hi < end:
                assert run.sibling is not None
                run = run.sibling
                runs.append(run)
        return runs


class KVLedger:
    """Same interface and same decisions as `KVCacheManager`, without block ids."""

    def __init__(self, cache: CacheConfig, scheduler: SchedulerConfig) -> None:
        self.block_size = cache.block_size
        self.enable_caching = cache.enable_prefix_caching
        self.max_model_len = scheduler.max_model_len
        self.drop_last_hit = scheduler.use_eagle
        self.watermark_blocks = int(scheduler.watermark * cache.num_gpu_blocks)
        self.num_usable_blocks = cache.num_usable_blocks
        self._num_plain = cache.num_usable_blocks  # free blocks without a hash
        self._num_queued = 0  # free blocks with one
        self._queue = _Run(0, 0, 0, 0)  # its `newer` is the oldest free run, its `older` the newest
        self._index: dict[BlockHash, list[_Run]] = {}  # runs of a piece, first cached first

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds."""
        return self._num_plain + self._num_queued

    @property
    def num_used_blocks(self) -> int:
        """Blocks that requests hold."""
        return self.num_usable_blocks - self._num_plain - self._num_queued

    def num_held(self, request: Request) -> int:
        """Blocks that the request holds."""
        holding = request.kv_holding
        return holding.num_blocks if isinstance(holding, _Holding) else 0

    def get_block_ids(self, request: Request) -> list[int]:
        """No ids: the ledger knows no physical blocks."""
        return []

    def get_computed_blocks(self, request: Request) -> LedgerHit:
        """As `KVCacheManager.get_computed_blocks`."""
        extents: list[_Extent] = []
        if not self.enable_caching:
            return LedgerHit(extents)
        num_full_blocks = (request.num_tokens - 1) // self.block_size
        for base, first, end in request.content.extents(0, num_full_blocks, self.block_size):
            if not self._find(base, first, end, extents):
                break
        if self.drop_last_hit and extents:
            run, lo, hi = extents.pop()
            if hi - lo > 1:
                extents.append((run, lo, hi - 1))
        return LedgerHit(extents)

    def _find(self, base: BlockHash, first: int, end: int, extents: list[_Extent]) -> bool:
        """Append the cached blocks from `first` on to `extents`; False if they end before `end`."""
        runs = self._index.get(base)
        while runs and first < end:
            stop = end  # an older run that begins later is found there first
            for run in runs:
                if run.lo <= first < run.hi:
                    stop = min(stop, run.hi)
                    extents.append((run, first, stop))
                    first = stop
                    break
                if first < run.lo < stop:
                    stop = run.lo
            else:
                return False
        return first >= end

    def allocate_slots(
        self,
        request: Request,
        num_new_tokens: int,
        *,
        new_computed_blocks: LedgerHit | None = None,
        num_lookahead_tokens: int = 0,
        full_sequence_must_fit: bool = False,
        has_scheduled_reqs: bool = True,
    ) -> list[int] | None:
        """As `KVCacheManager.allocate_slots`; the list of new blocks is empty."""
        holding = request.kv_holding
        if holding is None:
            holding = request.kv_holding = _Holding()
        assert isinstance(holding, _Holding)
        hits = new_computed_blocks
        num_hits = hits.num_blocks if hits else 0
        num_computed = request.num_computed_tokens + num_hits * self.block_size
        num_held = holding.num_blocks + num_hits
        available = self._num_plain + self._num_queued
        if hits and num_hits:
            available -= sum(hi - lo for run, lo, hi in hits.extents if run.ref_cnt == 0)
        if has_scheduled_reqs and request.status is not RequestStatus.RUNNING:
            available -= self.watermark_blocks
        block_size = self.block_size
        if full_sequence_must_fit:
            num_full = -(-min(request.num_tokens, self.max_model_len) // block_size)
            if num_full > num_held and num_full - num_held > available:
                return None
        num_slots = num_computed + num_new_tokens + num_lookahead_tokens
        num_new = max(-(-min(num_slots, self.max_model_len) // block_size) - num_held, 0)
        if num_new > available:
            return None
        if hits and num_hits:
            self._hold(holding, hits)
        if num_new:
            self.take(num_new)
            holding.num_blocks += num_new
        if self.enable_caching:
            self.cache_blocks(request, min(num_computed + num_new_tokens, request.num_tokens))
        return []

    def take(self, num_blocks: int) -> None:
        """Take blocks from the front of the free queue; what they cached is forgotten.

        Whose they are is the caller's to say (`give`). Raises `BlockPoolError` if too few are free.
        """
        num_plain = min(num_blocks, self._num_plain)
        self._num_plain -= num_plain
        num_blocks -= num_plain
        while num_blocks:
            run = self._queue.newer
            if run is self._queue:
                raise BlockPoolError(f"{num_blocks} more blocks asked for than are free")
            taken = min(num_blocks, run.hi - run.lo)
            run.hi -= taken
            self._num_queued -= taken
            num_blocks -= taken
            if run.lo == run.hi:
                self._unlink(run)
                self._drop(run)

    def give(self, request: Request, num_blocks: int) -> None:
        """Say that blocks taken with `take` are this request's."""
        assert isinstance(request.kv_holding, _Holding)
        request.kv_holding.num_blocks += num_blocks

    def cache_blocks(self, request: Request, num_tokens: int) -> None:
        """As `KVCacheManager.cache_blocks`."""
        holding = request.kv_holding
        assert isinstance(holding, _Holding)
        first, end = holding.num_cached, num_tokens // self.block_size
        if not self.enable_caching or first >= end:
            return
        for base, lo, hi in request.content.extents(first, end, self.block_size):
            runs = self._index.setdefault(base, [])
            last = holding.runs[-1][0] if holding.runs else None
            if last is not None and runs == [last] and last.ref_cnt == 1 and last.hi == lo:
                last.hi = hi
                holding.runs[-1] = (last, hi)
            else:
                run = _Run(base, lo, hi, 1)
                runs.append(run)
                holding.runs.append((run, hi))
        holding.num_cached = end

    def free(self, request: Request) -> None:
        """As `KVCacheManager.free`."""
        holding = request.kv_holding
        if holding is None:
            return
        assert isinstance(holding, _Holding)
        self._num_plain += holding.num_blocks - holding.num_cached
        if holding.runs:
            for run in reversed(holding.split_runs()):
                run.ref_cnt -= 1
                if not run.ref_cnt:
                    self._num_queued += run.hi - run.lo
                    self._link_before(run, self._queue)
        request.kv_holding = None

    def check(self, requests: Iterable[Request]) -> None:
        """Compare the books with what these (all) requests hold. Raises `BlockPoolError`."""
        num_held_plain = 0
        held: dict[int, int] = {}
        for request in requests:
            if isinstance(request.kv_holding, _Holding):
                num_held_plain += request.kv_holding.num_blocks - request.kv_holding.num_cached
                for run in request.kv_holding.split_runs():
                    held[id(run)] = held.get(id(run), 0) + 1
        runs = [run for runs in self._index.values() for run in runs]
        if any(run.ref_cnt != held.pop(id(run), 0) for run in runs) or held:
            raise BlockPoolError("a run's reference count differs from the requests that hold it")
        num_queued = sum(run.hi - run.lo for run in runs if not run.ref_cnt)
        num_held = sum(run.hi - run.lo for run in runs if run.ref_cnt)
        if num_queued != self._num_queued:
            raise BlockPoolError(f"{num_queued} cached blocks free, {self._num_queued} counted")
        total = num_held + num_queued + num_held_plain + self._num_plain
        if total != self.num_usable_blocks:
            raise BlockPoolError(f"{total} blocks in the books, {self.num_usable_blocks} exist")

    def _hold(self, holding: _Holding, hits: LedgerHit) -> None:
        for run, lo, hi in hits.extents:
            part = self._split(run, lo) if lo > run.lo else run
            if hi < part.hi:
                self._split(part, hi)
            if not part.ref_cnt:
                self._num_queued -= hi - lo
                self._unlink(part)
            part.ref_cnt += 1
            holding.runs.append((part, hi))
        holding.num_blocks = holding.num_cached = hits.num_blocks

    def _split(self, run: _Run, at: int) -> _Run:
        """Split a run before block `at`; returns the upper part, which is reused first."""
        upper = _Run(run.base, at, run.hi, run.ref_cnt)
        run.hi = at
        upper.sibling, run.sibling = run.sibling, upper
        runs = self._index[run.base]
        runs.insert(runs.index(run) + 1, upper)
        if not run.ref_cnt:
            self._link_before(upper, run)
        return upper

    def _drop(self, run: _Run) -> None:
        runs = self._index[run.base]
        runs.remove(run)
        if not runs:
            del self._index[run.base]

    def _link_before(self, run: _Run, other: _Run) -> None:
        """Put a run into the free list, to be reused just before `other`."""
        run.older, run.newer = other.older, other
        other.older.newer = run
        other.older = run

    def _unlink(self, run: _Run) -> None:
        run.older.newer, run.newer.older = run.newer, run.older
