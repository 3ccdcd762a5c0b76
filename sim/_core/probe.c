/* For the conformance tests: the scheduler without the clock, one decision or result at a time. */
#include "core.h"

#define ENTER(core)                                                              \
    if ((core)->is_broken) {                                                     \
        PyErr_SetString(PyExc_RuntimeError, "this core failed before");          \
        return NULL;                                                             \
    }                                                                            \
    if (setjmp((core)->on_error)) return NULL;

static int append_id(PyObject *list, int64_t id) {
    PyObject *number = PyLong_FromLongLong(id);
    int result = number ? PyList_Append(list, number) : -1;
    Py_XDECREF(number);
    return result;
}

static int by_admission(const void *a, const void *b) {
    int64_t i = (*(Request *const *)a)->admission_index, j = (*(Request *const *)b)->admission_index;
    return (i > j) - (i < j);
}

static int by_priority(const void *a, const void *b) {
    return priority_compare(*(Request *const *)a, *(Request *const *)b);
}

static PyObject *sorted_ids(Request **requests, int64_t count,
                            int (*compare)(const void *, const void *)) {
    if (count && compare) qsort(requests, (size_t)count, sizeof(Request *), compare);
    PyObject *list = PyList_New(0);
    for (int64_t i = 0; list && i < count; i++)
        if (append_id(list, requests[i]->id)) Py_CLEAR(list);
    return list;
}

/* Ids of the group's members in a step, in running order. */
static PyObject *member_ids(Core *core, const Step *step) {
    int64_t num_retired = core->retired_count - core->retired_first, count = 0;
    int64_t most = num_retired + core->group.count;
    Request **members = PyMem_Malloc((size_t)(most ? most : 1) * sizeof(Request *));
    if (!members) return PyErr_NoMemory();
    for (int64_t i = 0; step->num_decodes && i < most; i++) {
        Request *r = i < num_retired ? core->retired[core->retired_first + i]
                                     : core->group.heap[i - num_retired];
        if (r->join_step <= step->index && step->index <= r->last_step) members[count++] = r;
    }
    PyObject *list = sorted_ids(members, count, by_admission);
    PyMem_Free(members);
    return list;
}

static PyObject *queue_ids(const Queue *queue) {
    Request **requests = PyMem_Malloc((size_t)(queue->count ? queue->count : 1) * sizeof(Request *));
    if (!requests) return PyErr_NoMemory();
    int64_t i = 0;
    if (queue->is_keyed)
        for (; i < queue->count; i++) requests[i] = queue->heap[i];
    else
        for (Request *r = queue->head; r; r = r->queue_after) requests[i++] = r;
    PyObject *list = sorted_ids(requests, queue->count, queue->is_keyed ? by_priority : NULL);
    PyMem_Free(requests);
    return list;
}

PyObject *probe_schedule(PyObject *self, PyObject *Py_UNUSED(none)) {
    Core *core = (Core *)self;
    ENTER(core)
    int64_t first_admission = core->num_admissions;
    Step *step = scheduler_next_step(core, 0.0);
    PyObject *entries = PyList_New(0);
    for (int64_t i = 0; entries && i < step->num_entries; i++) {
        const Request *request = step->entries[i].request;
        PyObject *entry = Py_BuildValue(
            "LLLOO", (long long)request->id, (long long)step->entries[i].num_tokens,
            (long long)(request->num_computed_tokens - step->entries[i].num_tokens),
            request->admission_index >= first_admission ? Py_True : Py_False,
            request->num_preemptions ? Py_True : Py_False);
        if (!entry || PyList_Append(entries, entry)) Py_CLEAR(entries);
        Py_XDECREF(entry);
    }
    if (!entries) return NULL;
    return Py_BuildValue("NNL", entries, member_ids(core, step), (long long)step->num_preempted);
}

PyObject *probe_process(PyObject *self, PyObject *Py_UNUSED(none)) {
    Core *core = (Core *)self;
    ENTER(core)
    if (!core->num_steps_in_flight) return Py_BuildValue("[][]");
    Step *step = core_first_step(core);
    PyObject *emitted = member_ids(core, step);
    for (int64_t i = 0; emitted && i < step->num_entries; i++) {
        const Entry *entry = &step->entries[i];
        if (entry->is_sampling && !entry->request->has_ended)
            if (append_id(emitted, entry->request->id)) Py_CLEAR(emitted);
    }
    PyObject *ended = PyList_New(0);
    if (!emitted || !ended) {
        Py_XDECREF(emitted);
        Py_XDECREF(ended);
        return NULL;
    }
    int64_t num_first, num_gaps;
    scheduler_process(core, step, 0.0, &num_first, &num_gaps);
    for (int64_t i = 0; ended && i < core->num_ended_now; i++) {
        const char *reason = core->ended[i]->status == FINISHED_STOPPED ? "stop" : "length";
        PyObject *pair = Py_BuildValue("Ls", (long long)core->ended[i]->id, reason);
        if (!pair || PyList_Append(ended, pair)) Py_CLEAR(ended);
        Py_XDECREF(pair);
        core_recycle(core, core->ended[i]);
    }
    return Py_BuildValue("NN", emitted, ended);
}

/* True if there was such a request. */
PyObject *probe_abort(PyObject *self, PyObject *id) {
    Core *core = (Core *)self;
    int64_t wanted = PyLong_AsLongLong(id);
    if (PyErr_Occurred()) return NULL;
    ENTER(core)
    Request *request = core->all.head;
    while (request && request->id != wanted) request = request->after;
    if (!request) Py_RETURN_FALSE;
    scheduler_abort(core, request);
    core_recycle(core, request);
    Py_RETURN_TRUE;
}

/* (running, waiting, skipped, unfinished, free blocks, whether a step has anything to do) */
PyObject *probe_state(PyObject *self, PyObject *Py_UNUSED(none)) {
    Core *core = (Core *)self;
    PyObject *running = PyList_New(0), *all = PyList_New(0);
    for (Request *r = core->running.head; running && r; r = r->running_after)
        if (append_id(running, r->id)) Py_CLEAR(running);
    for (Request *r = core->all.head; all && r; r = r->after)
        if (append_id(all, r->id)) Py_CLEAR(all);
    if (!running || !all) {
        Py_XDECREF(running);
        Py_XDECREF(all);
        return NULL;
    }
    return Py_BuildValue("NNNNLO", running, queue_ids(&core->waiting), queue_ids(&core->skipped),
                         all, (long long)ledger_num_free(&core->ledger),
                         scheduler_has_requests(core) ? Py_True : Py_False);
}

/* Whether the books of the KV cache agree with the requests; dissolves the group. */
PyObject *probe_check(PyObject *self, PyObject *Py_UNUSED(none)) {
    Core *core = (Core *)self;
    ENTER(core)
    scheduler_dissolve(core);
    return PyBool_FromLong(ledger_check(core));
}

/* The step time of a shape as the core computes it. */
PyObject *probe_cost(PyObject *self, PyObject *args) {
    Core *core = (Core *)self;
    long long num_tokens, num_logits, num_decodes, context, max_context;
    PyObject *chunks;
    if (!PyArg_ParseTuple(args, "(LLLLO!L)", &num_tokens, &num_logits, &num_decodes, &context,
                          &PyTuple_Type, &chunks, &max_context))
        return NULL;
    ENTER(core)
    Shape *shape = &core->shape;
    shape->num_tokens = num_tokens;
    shape->num_logits = num_logits;
    shape->num_decodes = num_decodes;
    shape->decode_context_tokens = context;
    shape->decode_max_context_tokens = max_context;
    shape->num_chunks = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(chunks); i++) {
        long long new, computed;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(chunks, i), "LL", &new, &computed)) return NULL;
        shape->chunks = core_grow(core, shape->chunks, &shape->chunks_capacity,
                                  shape->num_chunks + 1, sizeof *shape->chunks);
        shape->chunks[shape->num_chunks][0] = new;
        shape->chunks[shape->num_chunks][1] = computed;
        shape->num_chunks++;
    }
    return PyFloat_FromDouble(cost_step_s(core, shape, false));
}
