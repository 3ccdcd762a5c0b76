/* The compiled core: one replica's scheduler, KV cache and clock, in plain C.
 *
 * It decides, counts and adds up times exactly as the Python classes of the same names do; they are
 * the readable reference, with the arguments why things are so, and tests hold both to the same
 * results, bit for bit:
 *
 *     content.c    sim/scheduler/block_hash.py      what a prompt contains
 *     ledger.c     sim/scheduler/kv_ledger.py       the KV cache, in runs of blocks
 *     queue.c      sim/scheduler/request_queue.py   who waits
 *     group.c      sim/scheduler/decode_group.py    steady decodes, as sums
 *     scheduler.c  sim/scheduler/scheduler.py, async_scheduler.py and leap_scheduler.py
 *     cost.c       calibration/                     step times
 *     rows.c       sim/records.py                   rows as columns
 *     replica.c    sim/engine.py and sim/leap.py    the cycle, in simulated time
 *     module.c                                      what Python sees
 *
 * Memory: requests, runs and pieces of content live in slabs that belong to the core and go with
 * it, so whatever happens, freeing the slabs frees everything. Errors (no memory, an exception in
 * a cost model written in Python) set the Python exception and jump to where Python called in; the
 * core is then broken and refuses all further work.
 */
#ifndef HEADWAY_CORE_H
#define HEADWAY_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if FLT_EVAL_METHOD != 0
#error "double arithmetic here keeps more bits than a double has; results would differ from Python's"
#endif

typedef struct Core Core;
typedef struct Node Node;
typedef struct Run Run;
typedef struct Request Request;

/* Slabs: many structs of one size, recycled through a free list. ---------------------------- */

typedef struct Slab {
    struct Slab *next;
    int64_t count;
} Slab;

typedef struct {
    size_t item_size;
    Slab *slabs;
    void *free_list; /* linked through the first pointer of each free item */
} Pool;

/* Content (content.c). ---------------------------------------------------------------------- */

enum { SEGMENT_INT, SEGMENT_TEXT, SEGMENT_OUTPUT, SEGMENT_OWN };

typedef struct {
    int64_t kind;
    int64_t id; /* the integer, the number of the text, or the request's id */
    int64_t num_tokens;
} Segment;

/* A piece of content after a given prefix; equal pieces after equal prefixes are one Node.
 * It lives while a request, a cached run or a longer piece refers to it. */
struct Node {
    Node *parent; /* the piece before it (NULL: it begins a prompt) ... */
    int64_t parent_tokens; /* ... and how many tokens of that come before this one */
    int64_t kind, id;
    uint64_t hash;
    Node *chain;
    int64_t num_refs;
    Run *first_run, *last_run; /* cached blocks of it, first cached first */
    Request *author; /* the group's member that generates it */
};

typedef struct {
    int64_t start; /* tokens before the piece */
    Node *node;
} Piece;

typedef struct {
    Node **buckets;
    uint64_t num_buckets; /* a power of two */
    uint64_t num_nodes;
} NodeTable;

/* The KV cache (ledger.c). ------------------------------------------------------------------ */

struct Run {
    Node *node;
    int64_t lo, hi, num_refs;
    Run *sibling; /* the run split off its end last */
    Run *older, *newer; /* neighbours among the free runs */
    Run *before, *after; /* neighbours among the node's runs */
};

typedef struct {
    Run *run;
    int64_t end;
} Held; /* covers the run up to block `end`, across runs split off it since */

typedef struct {
    Run *run;
    int64_t lo, hi;
} Extent;

typedef struct {
    Extent *extents;
    int64_t count, capacity;
    int64_t num_blocks;
} Hit;

typedef struct {
    int64_t block_size, watermark_blocks, num_usable_blocks;
    bool enable_caching;
    int64_t num_plain, num_queued;
    Run queue; /* `newer` is the oldest free run, `older` the newest */
} Ledger;

/* Requests. ---------------------------------------------------------------------------------- */

enum { WAITING, RUNNING, PREEMPTED, FINISHED_STOPPED, FINISHED_LENGTH, FINISHED_ABORTED, UNFINISHED };
enum { NOT_QUEUED, IN_WAITING, IN_SKIPPED };

struct Request {
    void *next_free; /* of the pool; must come first */
    bool is_used;
    int64_t id, priority, num_prompt_tokens, max_tokens, stop_at; /* stop_at 0: no stop token */
    double arrival_s;
    /* progress */
    int status;
    int64_t num_computed_tokens, num_output_tokens, num_output_placeholders;
    int64_t num_in_flight_tokens, num_stale_output_tokens;
    int64_t admission_index;
    bool is_prefill_chunk;
    /* counters and instants */
    int64_t num_preemptions, num_scheduled_tokens, num_cached_tokens;
    int64_t num_readmission_cached_tokens, num_preempted_tokens;
    double first_scheduled_s, first_token_s, last_token_s;
    /* what it holds of the KV cache */
    int64_t num_blocks, num_cached_blocks;
    Held *held;
    int64_t num_held, held_capacity;
    /* content: pieces of the prompt, the output's last; none without prefix caching */
    Piece *pieces;
    int64_t num_pieces, pieces_capacity;
    bool has_segments;
    /* membership in the group */
    bool is_member;
    int64_t join_step, last_step, phase;
    /* lists */
    Request *before, *after; /* all that have not ended, in order of submission */
    Request *running_before, *running_after;
    Request *lagging_before, *lagging_after;
    bool is_lagging;
    int queued_in;
    Request *queue_before, *queue_after;
    int64_t step_tokens; /* its tokens in the step being decided; 0: it is not in it */
    int num_step_refs; /* steps on their way that name it */
    bool has_ended;
};

typedef struct {
    Request *head, *tail;
    int64_t count;
} List;

/* Queues (queue.c). -------------------------------------------------------------------------- */

typedef struct {
    int which; /* IN_WAITING or IN_SKIPPED */
    bool is_keyed; /* by (priority, arrival, id); else first come, first served */
    Request *head, *tail;
    Request **heap;
    int64_t count, capacity;
} Queue;

/* The decode group (group.c). ---------------------------------------------------------------- */

/* A member's context less the step, which stays as it is, and its last step. */
typedef struct {
    int64_t offset, last_step;
} Context;

typedef struct {
    int64_t block_size, step, size, context_tokens, last_joined_index;
    Request **heap; /* by (last_step, admission_index) */
    int64_t count, capacity;
    Context *longest; /* a heap, longest first; entries of members that ended are passed over */
    int64_t num_contexts, contexts_capacity;
    int64_t *phases;
} Group;

/* Steps. --------------------------------------------------------------------------------------- */

typedef struct {
    Request *request;
    int64_t num_tokens;
    bool is_sampling;
} Entry;

typedef struct {
    int64_t num_tokens, num_logits, num_decodes, decode_context_tokens;
    int64_t decode_max_context_tokens;
    int64_t (*chunks)[2]; /* (new tokens, tokens computed before) */
    int64_t num_chunks, chunks_capacity;
} Shape;

typedef struct {
    /* the decision: `num_decodes` members of the group with a token each, and the entries */
    int64_t index, num_decodes, decode_context_tokens, decode_max_context_tokens;
    Entry *entries;
    int64_t num_entries, capacity;
    int64_t num_preempted, num_cached_tokens;
    bool reports_finished; /* that requests ended since the step before */
    /* the batch on the device, as its row will have it */
    double start_s, end_s;
    int64_t num_tokens, num_pieces_of_one, context_tokens, num_requests;
    int64_t num_running, num_waiting, kv_blocks_used;
} Step;

typedef struct {
    int64_t id;
    int status;
    int64_t num_output_tokens, num_preemptions;
    double first_scheduled_s, first_token_s, last_token_s;
} Ending;

#define MAX_STEPS_ON_THEIR_WAY 3 /* two, and the one being decided */

/* Costs (cost.c). -------------------------------------------------------------------------------- */

enum { COST_PYTHON, COST_CONSTANT, COST_LINEAR, COST_ROOFLINE, COST_PROFILE };

typedef struct {
    int64_t count;
    double *x, *y, *slope;
} Line;

typedef struct {
    int64_t num_columns;
    double *columns;
    Line *down;
} Grid;

typedef struct {
    int64_t num_layers;
    double *layers;
    Grid *grids;
} Box;

typedef struct {
    double flops_s, weights_s, rows_s;
} Gemm;

typedef struct {
    int kind;
    bool are_chunks_in_python; /* steps with chunks are asked of the model itself */
    PyObject *step_time_s, *decode_times_s, *shape_type;
    double constant_s;
    double base_s, per_token_s, per_context_token_s, per_logit_s;
    Gemm gemms[4], head;
    double pair_s, kv_s, attention_token_s, token_s, sampler_s, overhead_s;
    Line dense, logits;
    Grid prefill, decode;
    Box beside;
    bool has_beside;
    Line skew, skew_beside;
    bool has_skew, has_skew_beside;
    double launch_s;
    /* decode times asked of Python in advance */
    double *ahead;
    int64_t num_ahead, ahead_size, ahead_context, ahead_max_context;
} Cost;

/* Rows (rows.c). --------------------------------------------------------------------------------- */

#define MAX_COLUMNS 20

typedef union {
    int64_t i;
    double f;
} Cell;

typedef struct {
    int num_columns;
    int64_t count, capacity;
    PyObject *bytes[MAX_COLUMNS];
    Cell *cells[MAX_COLUMNS];
} Table;

/* The core. ---------------------------------------------------------------------------------------- */

enum { IDLE, TURN, HOST_DONE, RESULTS }; /* what the replica does next, at `next_s` */

struct Core {
    PyObject_HEAD
    /* options */
    int64_t max_num_seqs, token_budget, max_num_batched_tokens, max_model_len, threshold;
    bool is_priority, enable_chunked_prefill, reserve_full_isl, is_async;
    double host_per_step_s, host_per_request_s;
    /* memory */
    Pool requests, runs, nodes;
    NodeTable table;
    jmp_buf on_error;
    bool is_broken, is_busy;
    /* scheduler */
    Ledger ledger;
    Hit hit, freed; /* scratch */
    List all, running, lagging;
    Queue waiting, skipped;
    Group group;
    Request **retired; /* had their last step, its result is to come */
    int64_t retired_first, retired_count, retired_capacity;
    int64_t num_authors;
    int64_t num_admissions;
    bool has_finished_to_report, is_blocked;
    int64_t token_budget_left, input_budget_left; /* of the step being decided */
    Request **skipped_now;
    int64_t skipped_now_capacity;
    Request **ended;
    int64_t num_ended_now, ended_capacity;
    Ending *endings; /* what to tell of them */
    int64_t endings_capacity;
    Step steps[MAX_STEPS_ON_THEIR_WAY];
    int first_step, num_steps_in_flight;
    Shape shape;
    PyObject *texts; /* text segment ids, numbered as they come */
    Segment *segments; /* scratch */
    int64_t segments_capacity;
    /* clock */
    Cost cost;
    int doing;
    double next_s, now_s, last_end_s, last_result_s;
    bool is_stalled, stops_at_ends, is_mid_turn;
    int64_t num_steps, num_known_tokens, num_ended;
    int64_t num_preempted_before; /* by empty steps, which have no row of their own */
    int64_t num_preempted_in_vain, max_preempted_in_vain; /* since the last token came out */
    double last_token_s;
    PyObject *on_endless; /* called where they are too many: it raises */
    /* rows */
    Table step_rows, request_rows, gap_rows;
    int64_t actions_since_signals;
};

/* memory */
_Noreturn void core_fail(Core *core); /* a Python exception is set */
_Noreturn void core_no_memory(Core *core);
void *core_grow(Core *core, void *array, int64_t *capacity, int64_t needed, size_t item_size);
void *pool_take(Core *core, Pool *pool);
void pool_give(Pool *pool, void *item);

/* content.c */
void content_make(Core *core, Request *request, const Segment *segments, int64_t count);
void content_drop(Core *core, Request *request);
void node_ref(Node *node);
void node_unref(Core *core, Node *node);
/* One extent after another: call with *piece = -1 first; false when there are no more. */
bool content_next_extent(const Request *request, int64_t *piece, int64_t *first, int64_t end,
                         int64_t block_size, Node **node, int64_t *lo, int64_t *hi);

/* ledger.c */
int64_t ledger_num_free(const Ledger *ledger);
int64_t ledger_num_used(const Ledger *ledger);
void ledger_find(Core *core, const Request *request, Hit *hit);
bool ledger_allocate(Core *core, Request *request, int64_t num_new_tokens, const Hit *hit,
                     bool full_sequence_must_fit, bool has_scheduled_reqs);
void ledger_take(Core *core, int64_t num_blocks);
void ledger_cache(Core *core, Request *request, int64_t num_tokens);
void ledger_free(Core *core, Request *request);
bool ledger_check(Core *core); /* false: the books are wrong */

/* queue.c */
int priority_compare(const Request *a, const Request *b);
void queue_add(Core *core, Queue *queue, Request *request);
void queue_prepend(Core *core, Queue *queue, Request *request);
Request *queue_peek(const Queue *queue);
Request *queue_pop(Queue *queue);
void queue_remove(Queue *queue, Request *request);

/* group.c */
void group_join(Core *core, Group *group, Request *request, int64_t num_steps);
Request *group_retire_next(Group *group); /* NULL: nobody else retires before the next step */
int64_t group_steps_before(const Request *member, int64_t step);
int64_t group_blocks_needed(const Group *group);
int64_t group_max_context_tokens(Group *group); /* of the next step; those that ended are retired */

/* scheduler.c */
void scheduler_add(Core *core, Request *request);
Step *scheduler_next_step(Core *core, double now_s);
int64_t scheduler_process(Core *core, Step *step, double now_s, int64_t *num_first,
                          int64_t *num_gaps);
void scheduler_dissolve(Core *core);
bool scheduler_abort(Core *core, Request *request);
bool scheduler_has_requests(const Core *core);
void core_recycle(Core *core, Request *request);
Step *core_first_step(Core *core);

/* cost.c */
int cost_init(Cost *cost, PyObject *model, PyObject *form, PyObject *shape_type, int in_python);
void cost_clear(Cost *cost);
double cost_step_s(Core *core, Shape *shape, bool is_group_alone);

/* rows.c */
void table_init(Table *table, int num_columns);
void table_clear(Table *table);
int64_t table_row(Core *core, Table *table); /* index of a new row */
PyObject *table_take(Table *table);

/* replica.c */
Request *replica_submit(Core *core, double now_s, int64_t id, double arrival_s, int64_t priority,
                        int64_t num_prompt_tokens, int64_t max_tokens, int64_t stop_at,
                        const Segment *segments, int64_t num_segments);
bool replica_advance(Core *core, double until_s); /* true: it stopped because a request ended */
void replica_turn(Core *core);
void replica_close(Core *core);
void replica_request_row(Core *core, const Request *request, int state);
void replica_record_gap(Core *core, const Request *request, double gap_s);

#endif
