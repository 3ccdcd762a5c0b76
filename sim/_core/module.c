/* What Python sees: the type CoreReplica, and `advance_all` over several of them. */
#include "core.h"

/* Every call that can fail deep inside begins with this; `core_fail` comes back here. */
#define ENTER(core)                                                                       \
    if ((core)->is_broken || (core)->is_busy) {                                           \
        PyErr_SetString(PyExc_RuntimeError, (core)->is_busy                               \
                                                ? "a core can't be used from inside itself" \
                                                : "this core failed before");             \
        return NULL;                                                                      \
    }                                                                                     \
    if (setjmp((core)->on_error)) {                                                       \
        (core)->is_busy = false;                                                          \
        return NULL;                                                                      \
    }

PyObject *probe_schedule(PyObject *self, PyObject *none);
PyObject *probe_process(PyObject *self, PyObject *none);
PyObject *probe_abort(PyObject *self, PyObject *id);
PyObject *probe_state(PyObject *self, PyObject *none);
PyObject *probe_check(PyObject *self, PyObject *none);
PyObject *probe_cost(PyObject *self, PyObject *args);

static PyTypeObject *core_type; /* of this module's only type; lives as long as the module */

/* Prompts. -------------------------------------------------------------------------------------- */

/* Whether a text is `prefix` and a whole number as Python prints it; the number goes to *id. */
static bool is_numbered(const char *text, Py_ssize_t length, const char *prefix, int64_t *id) {
    if (length < 5 || length > 4 + 18 || memcmp(text, prefix, 4)) return false;
    const char *digits = text + 4, *end = text + length;
    if (*digits == '0' && length > 5) return false;
    for (*id = 0; digits < end; digits++) {
        if (*digits < '0' || *digits > '9') return false;
        *id = *id * 10 + (*digits - '0');
    }
    return true;
}

static int parse_segment(Core *core, PyObject *pair, Segment *segment) {
    PyObject *id;
    long long num_tokens;
    if (!PyTuple_Check(pair) || !PyArg_ParseTuple(pair, "OL", &id, &num_tokens)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a segment is (id, tokens)");
        return -1;
    }
    segment->num_tokens = num_tokens;
    if (PyLong_CheckExact(id)) {
        int overflow;
        segment->kind = SEGMENT_INT;
        segment->id = PyLong_AsLongLongAndOverflow(id, &overflow);
        if (!overflow) return 0;
    } else if (PyUnicode_Check(id)) {
        Py_ssize_t length;
        const char *text = PyUnicode_AsUTF8AndSize(id, &length);
        if (!text) return -1;
        segment->kind = SEGMENT_OUTPUT;
        if (is_numbered(text, length, "out:", &segment->id)) return 0;
        segment->kind = SEGMENT_OWN;
        if (is_numbered(text, length, "own:", &segment->id)) return 0;
    }
    /* All else is numbered as it comes. */
    segment->kind = SEGMENT_TEXT;
    PyObject *number = PyDict_GetItemWithError(core->texts, id);
    if (number) {
        segment->id = PyLong_AsLongLong(number);
        return 0;
    }
    if (PyErr_Occurred()) return -1;
    segment->id = PyDict_GET_SIZE(core->texts);
    number = PyLong_FromLongLong(segment->id);
    int result = number ? PyDict_SetItem(core->texts, id, number) : -1;
    Py_XDECREF(number);
    return result;
}

/* The segments of a prompt into `core->segments`; their number, or -1. */
static int64_t parse_prompt(Core *core, PyObject *prompt) {
    if (prompt == Py_None || !core->ledger.enable_caching) return 0;
    if (!PyTuple_Check(prompt)) {
        PyErr_SetString(PyExc_TypeError, "a prompt is a tuple of segments");
        return -1;
    }
    int64_t count = PyTuple_GET_SIZE(prompt);
    if (count > core->segments_capacity) {
        Segment *segments = PyMem_Realloc(core->segments, (size_t)count * sizeof(Segment));
        if (!segments) {
            PyErr_NoMemory();
            return -1;
        }
        core->segments = segments;
        core->segments_capacity = count;
    }
    for (int64_t i = 0; i < count; i++)
        if (parse_segment(core, PyTuple_GET_ITEM(prompt, i), &core->segments[i])) return -1;
    return count;
}

/* Methods. ---------------------------------------------------------------------------------------- */

static PyObject *submit(PyObject *self, PyObject *args) {
    Core *core = (Core *)self;
    double now_s, arrival_s;
    long long id, priority, num_prompt_tokens, max_tokens, stop_at = 0;
    PyObject *prompt;
    if (!PyArg_ParseTuple(args, "dLdLLLO|L", &now_s, &id, &arrival_s, &priority,
                          &num_prompt_tokens, &max_tokens, &prompt, &stop_at))
        return NULL;
    ENTER(core)
    int64_t num_segments = parse_prompt(core, prompt);
    if (num_segments < 0) return NULL;
    replica_submit(core, now_s, id, arrival_s, priority, num_prompt_tokens, max_tokens, stop_at,
                   core->segments, num_segments);
    Py_RETURN_NONE;
}

/* A column as an array of eight-byte numbers of the wanted kind ('i' or 'f'). */
static int get_column(PyObject *object, Py_buffer *view, char kind, int64_t *count) {
    if (PyObject_GetBuffer(object, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)) return -1;
    char format = view->format ? *view->format : 0;
    bool fits = view->itemsize == 8 && (kind == 'f' ? format == 'd' : format == 'l' || format == 'q');
    if (*count < 0) *count = view->len / 8;
    if (fits && view->len == *count * 8) return 0;
    PyBuffer_Release(view);
    PyErr_SetString(PyExc_TypeError, "columns are int64 or float64, of equal length");
    return -1;
}

static void feed_rows(Core *core, const Py_buffer *views, PyObject *prompts, int64_t count) {
    const int64_t *ids = views[0].buf, *priorities = views[2].buf;
    const int64_t *prompt_tokens = views[3].buf, *output_tokens = views[4].buf;
    const double *arrivals = views[1].buf;
    for (int64_t i = 0; i < count; i++) {
        int64_t num_segments = 0;
        if (prompts != Py_None) {
            num_segments = parse_prompt(core, PyList_GET_ITEM(prompts, i));
            if (num_segments < 0) core_fail(core);
        }
        replica_advance(core, arrivals[i]);
        replica_submit(core, arrivals[i], ids[i], arrivals[i], priorities[i], prompt_tokens[i],
                       output_tokens[i], 0, core->segments, num_segments);
    }
}

static PyObject *feed(PyObject *self, PyObject *args) {
    Core *core = (Core *)self;
    PyObject *columns[5], *prompts;
    if (!PyArg_ParseTuple(args, "OOOOOO", &columns[0], &columns[1], &columns[2], &columns[3],
                          &columns[4], &prompts))
        return NULL;
    if (core->is_broken || core->is_busy || core->stops_at_ends) {
        PyErr_SetString(PyExc_RuntimeError, "this core can't be fed now");
        return NULL;
    }
    Py_buffer views[5];
    int64_t count = -1;
    int taken = 0;
    while (taken < 5 && !get_column(columns[taken], &views[taken], taken == 1 ? 'f' : 'i', &count))
        taken++;
    bool is_fit = taken == 5;
    if (is_fit && prompts != Py_None &&
        (!PyList_Check(prompts) || PyList_GET_SIZE(prompts) != count)) {
        PyErr_SetString(PyExc_TypeError, "prompts are None or a list as long as the columns");
        is_fit = false;
    }
    volatile bool is_done = false;
    if (is_fit && !setjmp(core->on_error)) {
        core->is_busy = true;
        feed_rows(core, views, prompts, count);
        is_done = true;
    }
    core->is_busy = false;
    while (taken) PyBuffer_Release(&views[--taken]);
    if (!is_done) return NULL;
    Py_RETURN_NONE;
}

/* Those who ended last: (id, reason, output tokens, preemptions, instants). */
static PyObject *endings_of(const Core *core) {
    PyObject *endings = PyTuple_New(core->num_ended_now);
    for (int64_t i = 0; endings && i < core->num_ended_now; i++) {
        const Ending *ending = &core->endings[i];
        PyObject *item = Py_BuildValue(
            "LsLLddd", (long long)ending->id,
            ending->status == FINISHED_STOPPED ? "stop" : "length",
            (long long)ending->num_output_tokens, (long long)ending->num_preemptions,
            ending->first_scheduled_s, ending->first_token_s, ending->last_token_s);
        if (!item) Py_CLEAR(endings);
        else PyTuple_SET_ITEM(endings, i, item);
    }
    return endings;
}

static PyObject *advance(PyObject *self, PyObject *until) {
    Core *core = (Core *)self;
    double until_s = PyFloat_AsDouble(until);
    if (PyErr_Occurred()) return NULL;
    if (core->doing == IDLE || (core->next_s >= until_s && !core->is_mid_turn)) Py_RETURN_FALSE;
    ENTER(core)
    core->is_busy = true;
    bool has_ended = replica_advance(core, until_s);
    core->is_busy = false;
    return PyBool_FromLong(has_ended);
}

static PyObject *finish(PyObject *self, PyObject *Py_UNUSED(none)) {
    Core *core = (Core *)self;
    ENTER(core)
    int64_t count = core->all.count;
    replica_close(core);
    core->is_broken = true; /* its requests are written off */
    return PyLong_FromLongLong(count);
}

static PyObject *take_steps(PyObject *self, PyObject *Py_UNUSED(none)) {
    return table_take(&((Core *)self)->step_rows);
}

static PyObject *take_requests(PyObject *self, PyObject *Py_UNUSED(none)) {
    return table_take(&((Core *)self)->request_rows);
}

static PyObject *take_gaps(PyObject *self, PyObject *Py_UNUSED(none)) {
    return table_take(&((Core *)self)->gap_rows);
}

/* [(id, status, tokens known)] of those who have not ended */
static PyObject *unfinished(PyObject *self, PyObject *Py_UNUSED(none)) {
    static const char *const statuses[] = {"waiting", "running", "preempted"};
    PyObject *list = PyList_New(0);
    for (Request *r = ((Core *)self)->all.head; list && r; r = r->after) {
        const Group *group = &((Core *)self)->group;
        int64_t num_done = r->is_member ? group_steps_before(r, group->step) : 0;
        PyObject *item = Py_BuildValue(
            "LsL", (long long)r->id, statuses[r->status],
            (long long)(r->num_prompt_tokens + r->num_output_tokens + num_done));
        if (!item || PyList_Append(list, item)) Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *get_num_running(PyObject *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(((Core *)self)->running.count);
}

static PyObject *get_num_waiting(PyObject *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(((Core *)self)->waiting.count + ((Core *)self)->skipped.count);
}

static PyObject *get_num_requests(PyObject *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(((Core *)self)->all.count);
}

static PyObject *get_num_known_tokens(PyObject *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(((Core *)self)->num_known_tokens);
}

static PyObject *get_num_ended(PyObject *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(((Core *)self)->num_ended);
}

static PyObject *get_num_steps(PyObject *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(((Core *)self)->num_steps);
}

static PyObject *get_num_free_blocks(PyObject *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(ledger_num_free(&((Core *)self)->ledger));
}

static PyObject *get_next_s(PyObject *self, void *Py_UNUSED(closure)) {
    const Core *core = (Core *)self;
    return PyFloat_FromDouble(core->doing == IDLE ? Py_HUGE_VAL : core->next_s);
}

/* Several replicas. --------------------------------------------------------------------------------- */

static bool is_due(const Core *core, double until_s) {
    return core->doing != IDLE && core->next_s < until_s;
}

/* Whether the turn of a, at place i, comes before that of b, at place j. */
static bool comes_before(const Core *a, Py_ssize_t i, const Core *b, Py_ssize_t j) {
    return a->next_s < b->next_s || (a->next_s == b->next_s && i < j);
}

/* Give a core its turns while they come before `until_s` and before those of the core `other`.
 * 1: a request ended; -1: an exception. */
static int run_turns(Core *core, Py_ssize_t i, double until_s, const Core *other, Py_ssize_t j) {
    if (core->is_broken || core->is_busy) {
        PyErr_SetString(PyExc_RuntimeError, "this core can't go on");
        return -1;
    }
    if (setjmp(core->on_error)) {
        core->is_busy = false;
        return -1;
    }
    core->is_busy = true;
    do {
        replica_turn(core);
    } while (!core->is_mid_turn && is_due(core, until_s) &&
             (!other || comes_before(core, i, other, j)));
    core->is_busy = false;
    return core->is_mid_turn;
}

static PyObject *advance_all(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *tuple;
    double until_s;
    if (!PyArg_ParseTuple(args, "O!d", &PyTuple_Type, &tuple, &until_s)) return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    for (Py_ssize_t i = 0; i < count; i++)
        if (!PyObject_TypeCheck(PyTuple_GET_ITEM(tuple, i), core_type)) {
            PyErr_SetString(PyExc_TypeError, "advance_all takes a tuple of CoreReplica");
            return NULL;
        }
    for (;;) {
        Core *first = NULL, *second = NULL;
        Py_ssize_t at = 0, next = 0;
        for (Py_ssize_t i = 0; i < count; i++) {
            Core *core = (Core *)PyTuple_GET_ITEM(tuple, i);
            if (core->is_mid_turn) { /* nothing comes between the halves of a turn */
                second = first;
                next = at;
                first = core;
                at = i;
                break;
            }
            if (!is_due(core, until_s)) continue;
            if (!first || comes_before(core, i, first, at)) {
                second = first;
                next = at;
                first = core;
                at = i;
            } else if (!second || comes_before(core, i, second, next)) {
                second = core;
                next = i;
            }
        }
        if (!first) Py_RETURN_NONE;
        if (first->is_mid_turn) { /* the rest of this turn, then look again */
            second = first;
            next = -1;
        }
        int result = run_turns(first, at, until_s, second, next);
        if (result < 0) return NULL;
        if (result) return Py_BuildValue("ndN", at, first->next_s, endings_of(first));
    }
}

/* The type. -------------------------------------------------------------------------------------------- */

static PyObject *core_new(PyTypeObject *type, PyObject *args, PyObject *options) {
    static char *names[] = {
        "max_num_seqs", "token_budget", "max_num_batched_tokens", "max_model_len",
        "long_prefill_token_threshold", "is_priority", "enable_chunked_prefill",
        "scheduler_reserve_full_isl", "async_scheduling", "num_usable_blocks", "block_size",
        "watermark_blocks", "enable_prefix_caching", "host_per_step_s", "host_per_request_s",
        "stops_at_ends", "cost", "cost_form", "shape_type", "chunks_in_python",
        "max_preempted_in_vain", "on_endless", NULL};
    long long max_num_seqs, token_budget, max_num_batched_tokens, max_model_len, threshold;
    long long num_usable_blocks, block_size, watermark_blocks, max_preempted_in_vain;
    int is_priority, chunked, reserve, is_async, caching, stops_at_ends, chunks_in_python;
    double host_per_step_s, host_per_request_s;
    PyObject *cost, *form, *shape_type, *on_endless;
    if (!PyArg_ParseTupleAndKeywords(
            args, options, "$LLLLLppppLLLpddpOOOpLO", names, &max_num_seqs, &token_budget,
            &max_num_batched_tokens, &max_model_len, &threshold, &is_priority, &chunked, &reserve,
            &is_async, &num_usable_blocks, &block_size, &watermark_blocks, &caching,
            &host_per_step_s, &host_per_request_s, &stops_at_ends, &cost, &form, &shape_type,
            &chunks_in_python, &max_preempted_in_vain, &on_endless))
        return NULL;
    if (block_size < 1 || num_usable_blocks < 1) {
        PyErr_SetString(PyExc_ValueError, "block_size and num_usable_blocks must be at least 1");
        return NULL;
    }
    Core *core = (Core *)type->tp_alloc(type, 0); /* all zero */
    if (!core) return NULL;
    core->max_num_seqs = max_num_seqs;
    core->token_budget = token_budget;
    core->max_num_batched_tokens = max_num_batched_tokens;
    core->max_model_len = max_model_len;
    core->threshold = threshold;
    core->is_priority = is_priority;
    core->enable_chunked_prefill = chunked;
    core->reserve_full_isl = reserve;
    core->is_async = is_async;
    core->host_per_step_s = host_per_step_s;
    core->host_per_request_s = host_per_request_s;
    core->stops_at_ends = stops_at_ends;
    core->requests.item_size = sizeof(Request);
    core->runs.item_size = sizeof(Run);
    core->nodes.item_size = sizeof(Node);
    core->ledger = (Ledger){.block_size = block_size, .watermark_blocks = watermark_blocks,
                            .num_usable_blocks = num_usable_blocks, .enable_caching = caching,
                            .num_plain = num_usable_blocks};
    core->ledger.queue.older = core->ledger.queue.newer = &core->ledger.queue;
    core->waiting = (Queue){.which = IN_WAITING, .is_keyed = is_priority};
    core->skipped = (Queue){.which = IN_SKIPPED, .is_keyed = is_priority};
    core->group.block_size = block_size;
    core->group.last_joined_index = -1;
    core->group.phases = PyMem_Calloc((size_t)block_size, sizeof(int64_t));
    core->last_result_s = core->last_token_s = -1.0;
    core->max_preempted_in_vain = max_preempted_in_vain;
    core->on_endless = Py_NewRef(on_endless);
    core->texts = PyDict_New();
    if (!core->group.phases) PyErr_NoMemory();
    table_init(&core->step_rows, 15);
    table_init(&core->request_rows, 16);
    table_init(&core->gap_rows, 3);
    if (!core->group.phases || !core->texts ||
        cost_init(&core->cost, cost, form, shape_type, chunks_in_python)) {
        Py_DECREF(core);
        return NULL;
    }
    return (PyObject *)core;
}

static void free_slabs(Pool *pool) {
    for (Slab *slab = pool->slabs, *next; slab; slab = next) {
        next = slab->next;
        PyMem_Free(slab);
    }
}

static void core_dealloc(PyObject *self) {
    Core *core = (Core *)self;
    for (Slab *slab = core->requests.slabs; slab; slab = slab->next)
        for (int64_t i = 0; i < slab->count; i++) {
            Request *request = (Request *)(void *)(slab + 1) + i;
            PyMem_Free(request->held);
            PyMem_Free(request->pieces);
        }
    free_slabs(&core->requests);
    free_slabs(&core->runs);
    free_slabs(&core->nodes);
    for (int i = 0; i < MAX_STEPS_ON_THEIR_WAY; i++) PyMem_Free(core->steps[i].entries);
    void *arrays[] = {core->table.buckets, core->hit.extents, core->freed.extents,
                      core->waiting.heap,  core->skipped.heap, core->group.heap,
                      core->group.longest,
                      core->group.phases,  core->retired,      core->skipped_now,
                      core->ended,         core->endings,      core->shape.chunks,
                      core->segments};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) PyMem_Free(arrays[i]);
    cost_clear(&core->cost);
    table_clear(&core->step_rows);
    table_clear(&core->request_rows);
    table_clear(&core->gap_rows);
    Py_CLEAR(core->texts);
    Py_CLEAR(core->on_endless);
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef core_methods[] = {
    {"submit", submit, METH_VARARGS,
     "submit(now_s, id, arrival_s, priority, num_prompt_tokens, max_tokens, prompt, stop_at=0)"},
    {"feed", feed, METH_VARARGS,
     "feed(ids, arrivals_s, priorities, prompt_tokens, output_tokens, prompts): each in its time"},
    {"advance", advance, METH_O,
     "advance(until_s): take the turns before it; True if one was cut as a request ended"},
    {"finish", finish, METH_NOARGS, "finish(): write unfinished rows; returns how many; then no more"},
    {"take_steps", take_steps, METH_NOARGS, "(count, columns) of steps since the last call, or None"},
    {"take_requests", take_requests, METH_NOARGS, "(count, columns) of requests since then, or None"},
    {"take_gaps", take_gaps, METH_NOARGS, "(count, columns) of gaps since then, or None"},
    {"unfinished", unfinished, METH_NOARGS, "[(id, status, tokens known)] of those not ended"},
    {"probe_schedule", probe_schedule, METH_NOARGS, "for tests: decide a step, without the clock"},
    {"probe_process", probe_process, METH_NOARGS, "for tests: process the oldest step's results"},
    {"probe_abort", probe_abort, METH_O, "for tests: abort a request"},
    {"probe_state", probe_state, METH_NOARGS, "for tests: queues and free blocks"},
    {"probe_check", probe_check, METH_NOARGS, "for tests: whether the KV books agree"},
    {"probe_cost", probe_cost, METH_VARARGS, "for tests: the step time of a shape"},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef core_getters[] = {
    {"num_running", get_num_running, NULL, "requests in the running queue", NULL},
    {"num_waiting", get_num_waiting, NULL, "requests not admitted", NULL},
    {"num_requests", get_num_requests, NULL, "requests that have not ended", NULL},
    {"num_known_tokens", get_num_known_tokens, NULL, "prompt and output tokens of those", NULL},
    {"num_ended", get_num_ended, NULL, "requests that finished so far", NULL},
    {"num_steps", get_num_steps, NULL, "steps recorded so far", NULL},
    {"num_free_blocks", get_num_free_blocks, NULL, "KV blocks that nobody holds", NULL},
    {"next_s", get_next_s, NULL, "instant of the next turn; inf: none without a request", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot core_slots[] = {
    {Py_tp_new, core_new},
    {Py_tp_dealloc, core_dealloc},
    {Py_tp_methods, core_methods},
    {Py_tp_getset, core_getters},
    {Py_tp_doc, "One replica's scheduler, KV cache and clock; see core.h."},
    {0, NULL}};

static PyType_Spec core_spec = {"sim._core._native.CoreReplica", sizeof(Core), 0,
                                Py_TPFLAGS_DEFAULT, core_slots};

static PyMethodDef module_methods[] = {
    {"advance_all", advance_all, METH_VARARGS,
     "advance_all(cores, until_s): take the turns of all before it, in the order of time, then of\n"
     "the tuple. None, or (place, at_s, endings) of requests that ended in a core that stops there."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module_def = {PyModuleDef_HEAD_INIT, "_native",
                                        "The compiled core of a replica.", -1, module_methods,
                                        NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&module_def);
    if (!module) return NULL;
    core_type = (PyTypeObject *)PyType_FromSpec(&core_spec);
    if (!core_type || PyModule_AddObjectRef(module, "CoreReplica", (PyObject *)core_type)) {
        Py_XDECREF(core_type);
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
