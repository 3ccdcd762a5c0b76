/* The KV cache as run-length books: `KVLedger`, function by function. */
#include "core.h"

int64_t ledger_num_free(const Ledger *ledger) { return ledger->num_plain + ledger->num_queued; }

int64_t ledger_num_used(const Ledger *ledger) {
    return ledger->num_usable_blocks - ledger->num_plain - ledger->num_queued;
}

static int64_t blocks_for(int64_t num_tokens, int64_t block_size) {
    return (num_tokens + block_size - 1) / block_size;
}

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

/* Free runs ------------------------------------------------------------------------------- */

static void link_before(Run *run, Run *other) {
    run->older = other->older;
    run->newer = other;
    other->older->newer = run;
    other->older = run;
}

static void unlink_run(Run *run) {
    run->older->newer = run->newer;
    run->newer->older = run->older;
}

/* Runs of a piece ---------------------------------------------------------------------------- */

static Run *new_run(Core *core, Node *node, int64_t lo, int64_t hi, int64_t num_refs) {
    Run *run = pool_take(core, &core->runs);
    *run = (Run){.node = node, .lo = lo, .hi = hi, .num_refs = num_refs};
    run->older = run->newer = run;
    node_ref(node);
    return run;
}

static void insert_after(Run *run, Run *other) { /* other NULL: at the end */
    Node *node = run->node;
    if (!other) other = node->last_run;
    run->before = other;
    run->after = other ? other->after : NULL;
    if (run->after) run->after->before = run;
    else node->last_run = run;
    if (other) other->after = run;
    else node->first_run = run;
}

static void drop_run(Core *core, Run *run) {
    Node *node = run->node;
    if (run->before) run->before->after = run->after;
    else node->first_run = run->after;
    if (run->after) run->after->before = run->before;
    else node->last_run = run->before;
    pool_give(&core->runs, run);
    node_unref(core, node);
}

static Run *split_run(Core *core, Run *run, int64_t at) {
    Run *upper = new_run(core, run->node, at, run->hi, run->num_refs);
    run->hi = at;
    upper->sibling = run->sibling;
    run->sibling = upper;
    insert_after(upper, run);
    if (!run->num_refs) link_before(upper, run);
    return upper;
}

/* Hits ------------------------------------------------------------------------------------------ */

static void hit_append(Core *core, Hit *hit, Run *run, int64_t lo, int64_t hi) {
    hit->extents = core_grow(core, hit->extents, &hit->capacity, hit->count + 1, sizeof(Extent));
    hit->extents[hit->count++] = (Extent){run, lo, hi};
    hit->num_blocks += hi - lo;
}

/* Appends the cached blocks from `first` on; false if they end before `end`. */
static bool find_in(Core *core, const Node *node, int64_t first, int64_t end, Hit *hit) {
    while (node->first_run && first < end) {
        int64_t stop = end; /* an older run that begins later is found there first */
        bool is_found = false;
        for (Run *run = node->first_run; run; run = run->after) {
            if (run->lo <= first && first < run->hi) {
                stop = min64(stop, run->hi);
                hit_append(core, hit, run, first, stop);
                first = stop;
                is_found = true;
                break;
            }
            if (first < run->lo && run->lo < stop) stop = run->lo;
        }
        if (!is_found) return false;
    }
    return first >= end;
}

void ledger_find(Core *core, const Request *request, Hit *hit) {
    Ledger *ledger = &core->ledger;
    hit->count = hit->num_blocks = 0;
    if (!ledger->enable_caching) return;
    int64_t num_tokens = request->num_prompt_tokens + request->num_output_tokens;
    int64_t end = (num_tokens - 1) / ledger->block_size, first = 0, piece = -1, lo, hi;
    Node *node;
    while (content_next_extent(request, &piece, &first, end, ledger->block_size, &node, &lo, &hi))
        if (!find_in(core, node, lo, hi, hit)) break;
}

static void append_held(Core *core, Request *request, Run *run, int64_t end) {
    request->held = core_grow(core, request->held, &request->held_capacity, request->num_held + 1,
                              sizeof(Held));
    request->held[request->num_held++] = (Held){run, end};
}

static void hold(Core *core, Request *request, const Hit *hit) {
    for (int64_t i = 0; i < hit->count; i++) {
        Extent extent = hit->extents[i];
        Run *part = extent.lo > extent.run->lo ? split_run(core, extent.run, extent.lo)
                                               : extent.run;
        if (extent.hi < part->hi) split_run(core, part, extent.hi);
        if (!part->num_refs) {
            core->ledger.num_queued -= extent.hi - extent.lo;
            unlink_run(part);
        }
        part->num_refs++;
        append_held(core, request, part, extent.hi);
    }
    request->num_blocks = request->num_cached_blocks = hit->num_blocks;
}

/* Allocation --------------------------------------------------------------------------------------- */

bool ledger_allocate(Core *core, Request *request, int64_t num_new_tokens, const Hit *hit,
                     bool full_sequence_must_fit, bool has_scheduled_reqs) {
    Ledger *ledger = &core->ledger;
    int64_t block_size = ledger->block_size;
    int64_t num_hits = hit ? hit->num_blocks : 0;
    int64_t num_computed = request->num_computed_tokens + num_hits * block_size;
    int64_t num_held = request->num_blocks + num_hits;
    int64_t num_tokens = request->num_prompt_tokens + request->num_output_tokens;
    int64_t available = ledger_num_free(ledger);
    for (int64_t i = 0; hit && i < hit->count; i++)
        if (!hit->extents[i].run->num_refs) available -= hit->extents[i].hi - hit->extents[i].lo;
    if (has_scheduled_reqs && request->status != RUNNING) available -= ledger->watermark_blocks;
    if (full_sequence_must_fit) {
        int64_t num_full = blocks_for(min64(num_tokens, core->max_model_len), block_size);
        if (num_full > num_held && num_full - num_held > available) return false;
    }
    int64_t num_slots = min64(num_computed + num_new_tokens, core->max_model_len);
    int64_t num_new = blocks_for(num_slots, block_size) - num_held;
    if (num_new < 0) num_new = 0;
    if (num_new > available) return false;
    if (num_hits) hold(core, request, hit);
    if (num_new) {
        ledger_take(core, num_new);
        request->num_blocks += num_new;
    }
    if (ledger->enable_caching)
        ledger_cache(core, request, min64(num_computed + num_new_tokens, num_tokens));
    return true;
}

void ledger_take(Core *core, int64_t num_blocks) {
    Ledger *ledger = &core->ledger;
    int64_t num_plain = min64(num_blocks, ledger->num_plain);
    ledger->num_plain -= num_plain;
    num_blocks -= num_plain;
    while (num_blocks) {
        Run *run = ledger->queue.newer;
        if (run == &ledger->queue) {
            PyErr_SetString(PyExc_RuntimeError, "more KV blocks asked for than are free");
            core_fail(core);
        }
        int64_t taken = min64(num_blocks, run->hi - run->lo);
        run->hi -= taken;
        ledger->num_queued -= taken;
        num_blocks -= taken;
        if (run->lo == run->hi) {
            unlink_run(run);
            drop_run(core, run);
        }
    }
}

void ledger_cache(Core *core, Request *request, int64_t num_tokens) {
    Ledger *ledger = &core->ledger;
    int64_t first = request->num_cached_blocks, end = num_tokens / ledger->block_size;
    if (!ledger->enable_caching || first >= end) return;
    int64_t piece = -1, lo, hi;
    Node *node;
    while (content_next_extent(request, &piece, &first, end, ledger->block_size, &node, &lo, &hi)) {
        Run *last = request->num_held ? request->held[request->num_held - 1].run : NULL;
        if (last && node->first_run == last && node->last_run == last && last->num_refs == 1 &&
            last->hi == lo) {
            last->hi = hi;
            request->held[request->num_held - 1].end = hi;
        } else {
            Run *run = new_run(core, node, lo, hi, 1);
            insert_after(run, NULL);
            append_held(core, request, run, hi);
        }
    }
    request->num_cached_blocks = end;
}

void ledger_free(Core *core, Request *request) {
    Ledger *ledger = &core->ledger;
    ledger->num_plain += request->num_blocks - request->num_cached_blocks;
    Hit *runs = &core->freed; /* spelt out, as runs were split since they were held */
    runs->count = 0;
    for (int64_t i = 0; i < request->num_held; i++) {
        Run *run = request->held[i].run;
        hit_append(core, runs, run, run->lo, run->hi);
        while (run->hi < request->held[i].end) {
            run = run->sibling;
            hit_append(core, runs, run, run->lo, run->hi);
        }
    }
    while (runs->count) { /* last block first */
        Run *run = runs->extents[--runs->count].run;
        if (--run->num_refs == 0) {
            ledger->num_queued += run->hi - run->lo;
            link_before(run, &ledger->queue);
        }
    }
    request->num_held = request->num_blocks = request->num_cached_blocks = 0;
}

bool ledger_check(Core *core) {
    Ledger *ledger = &core->ledger;
    int64_t total = ledger->num_plain, num_queued = 0;
    for (Request *request = core->all.head; request; request = request->after)
        total += request->num_blocks - request->num_cached_blocks;
    for (uint64_t i = 0; i < core->table.num_buckets; i++)
        for (Node *node = core->table.buckets[i]; node; node = node->chain)
            for (Run *run = node->first_run; run; run = run->after) {
                total += run->hi - run->lo;
                if (!run->num_refs) num_queued += run->hi - run->lo;
            }
    return total == ledger->num_usable_blocks && num_queued == ledger->num_queued;
}
