/* One replica in simulated time: the cycle of `Replica`, as turns that happen at `next_s`. */
#include "core.h"

static bool has_work(const Core *core) {
    return scheduler_has_requests(core) && !core->is_stalled;
}

static double host_s(const Core *core, int64_t num_requests) {
    return core->host_per_step_s + core->host_per_request_s * (double)num_requests;
}

static void wait_until(Core *core, int doing, double at_s) {
    core->doing = doing;
    core->next_s = at_s;
}

/* Arrivals ------------------------------------------------------------------------------------ */

Request *replica_submit(Core *core, double now_s, int64_t id, double arrival_s, int64_t priority,
                        int64_t num_prompt_tokens, int64_t max_tokens, int64_t stop_at,
                        const Segment *segments, int64_t num_segments) {
    Request *request = pool_take(core, &core->requests);
    Held *held = request->held; /* arrays are kept from its last use */
    Piece *pieces = request->pieces;
    int64_t held_capacity = request->held_capacity, pieces_capacity = request->pieces_capacity;
    memset(request, 0, sizeof *request);
    request->held = held;
    request->held_capacity = held_capacity;
    request->pieces = pieces;
    request->pieces_capacity = pieces_capacity;
    request->is_used = true;
    request->id = id;
    request->arrival_s = arrival_s;
    request->priority = priority;
    request->num_prompt_tokens = num_prompt_tokens;
    request->max_tokens = max_tokens;
    request->stop_at = stop_at;
    request->admission_index = -1;
    request->first_scheduled_s = request->first_token_s = request->last_token_s = Py_NAN;
    if (core->ledger.enable_caching) content_make(core, request, segments, num_segments);
    List *list = &core->all;
    request->before = list->tail;
    if (list->tail) list->tail->after = request;
    else list->head = request;
    list->tail = request;
    list->count++;
    core->num_known_tokens += num_prompt_tokens;
    scheduler_add(core, request);
    core->is_stalled = false;
    if (core->doing == IDLE) wait_until(core, TURN, now_s);
    return request;
}

/* A step -------------------------------------------------------------------------------------------- */

/* The batch as a cost model may see it; progress was advanced already. */
static void fill_shape(Core *core, const Step *step) {
    Shape *shape = &core->shape;
    shape->num_tokens = shape->num_logits = shape->num_decodes = step->num_decodes;
    shape->decode_context_tokens = step->decode_context_tokens;
    shape->decode_max_context_tokens = step->decode_max_context_tokens;
    shape->num_chunks = 0;
    for (int64_t i = 0; i < step->num_entries; i++) {
        const Entry *entry = &step->entries[i];
        int64_t context_tokens = entry->request->num_computed_tokens;
        shape->num_tokens += entry->num_tokens;
        shape->num_logits += entry->is_sampling;
        if (entry->num_tokens == 1) {
            shape->num_decodes++;
            shape->decode_context_tokens += context_tokens;
            if (context_tokens > shape->decode_max_context_tokens)
                shape->decode_max_context_tokens = context_tokens;
            continue;
        }
        shape->chunks = core_grow(core, shape->chunks, &shape->chunks_capacity,
                                  shape->num_chunks + 1, sizeof *shape->chunks);
        shape->chunks[shape->num_chunks][0] = entry->num_tokens;
        shape->chunks[shape->num_chunks][1] = context_tokens - entry->num_tokens;
        shape->num_chunks++;
    }
}

/* Requests that preempt each other for ever end the run: see sim/endless.py. */
static void count_preemptions(Core *core, const Step *step, double now_s) {
    core->num_preempted_in_vain += step->num_preempted;
    if (core->num_preempted_in_vain <= core->max_preempted_in_vain) return;
    Py_XDECREF(PyObject_CallFunction(core->on_endless, "dd", now_s, core->last_token_s));
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "on_endless must raise");
    core_fail(core);
}

/* Decide a step and put it on the device; false if there is nothing to compute. */
static bool schedule_batch(Core *core, double now_s) {
    Step *step = scheduler_next_step(core, now_s);
    count_preemptions(core, step, now_s);
    if (!step->num_decodes && !step->num_entries) {
        /* Nothing can change by itself any more, unless something was freed. */
        core->is_stalled = !(step->num_preempted || step->reports_finished);
        core->num_preempted_before += step->num_preempted;
        return false;
    }
    fill_shape(core, step);
    step->num_requests = step->num_entries + step->num_decodes;
    double ready_s = now_s + host_s(core, step->num_requests);
    step->start_s = core->last_end_s > ready_s ? core->last_end_s : ready_s;
    step->end_s = step->start_s + cost_step_s(core, &core->shape, !step->num_entries);
    core->last_end_s = step->end_s;
    step->num_tokens = core->shape.num_tokens;
    step->num_pieces_of_one = core->shape.num_decodes;
    step->context_tokens = core->shape.decode_context_tokens;
    step->num_running = core->running.count;
    step->num_waiting = core->waiting.count + core->skipped.count;
    step->kv_blocks_used = ledger_num_used(&core->ledger);
    return true;
}

void replica_record_gap(Core *core, const Request *request, double gap_s) {
    Table *table = &core->gap_rows;
    int64_t row = table_row(core, table);
    table->cells[0][row].i = core->num_steps;
    table->cells[1][row].i = request->id;
    table->cells[2][row].f = gap_s;
}

void replica_request_row(Core *core, const Request *request, int state) {
    Table *table = &core->request_rows;
    int64_t row = table_row(core, table);
    Cell **cells = table->cells;
    cells[0][row].i = request->id;
    cells[1][row].f = request->arrival_s;
    cells[2][row].i = request->priority;
    cells[3][row].i = request->num_prompt_tokens;
    cells[4][row].i = request->max_tokens;
    cells[5][row].i = request->num_output_tokens;
    cells[6][row].i = state;
    cells[7][row].f = request->first_scheduled_s;
    cells[8][row].f = request->first_token_s;
    cells[9][row].f = request->last_token_s;
    cells[10][row].i = request->num_cached_tokens;
    cells[11][row].i = request->num_readmission_cached_tokens;
    cells[12][row].i = request->num_preemptions;
    cells[13][row].i = request->num_preempted_tokens;
    cells[14][row].i = request->num_scheduled_tokens;
    cells[15][row].i = request->num_computed_tokens;
}

/* Process the results of the oldest step, known now, and record it. True if requests ended. */
static bool update(Core *core, double now_s) {
    Step *step = core_first_step(core);
    int64_t num_first, num_gaps;
    int64_t num_emitted = scheduler_process(core, step, now_s, &num_first, &num_gaps);
    Table *table = &core->step_rows;
    int64_t row = table_row(core, table);
    Cell **cells = table->cells;
    cells[0][row].f = step->start_s;
    cells[1][row].f = now_s;
    cells[2][row].i = step->num_tokens;
    cells[3][row].i = step->num_pieces_of_one;
    cells[4][row].i = step->num_requests;
    cells[5][row].i = step->context_tokens;
    cells[6][row].i = step->num_running;
    cells[7][row].i = step->num_waiting;
    cells[8][row].i = step->kv_blocks_used;
    cells[9][row].i = num_emitted;
    cells[10][row].i = num_first;
    cells[11][row].i = num_gaps;
    cells[12][row].i = step->num_preempted + core->num_preempted_before;
    cells[13][row].i = core->num_ended_now;
    cells[14][row].i = step->num_cached_tokens;
    core->num_steps++;
    core->num_preempted_before = 0;
    core->num_known_tokens += num_emitted;
    core->last_result_s = now_s;
    if (num_emitted) {
        core->last_token_s = now_s;
        core->num_preempted_in_vain = 0;
    }
    for (int64_t i = 0; i < core->num_ended_now; i++) {
        Request *request = core->ended[i];
        core->num_known_tokens -= request->num_prompt_tokens + request->num_output_tokens;
        replica_request_row(core, request, request->status);
        core->endings = core_grow(core, core->endings, &core->endings_capacity, i + 1,
                                  sizeof(Ending));
        core->endings[i] = (Ending){request->id, request->status, request->num_output_tokens,
                                    request->num_preemptions, request->first_scheduled_s,
                                    request->first_token_s, request->last_token_s};
        core_recycle(core, request);
    }
    core->num_ended += core->num_ended_now;
    return core->num_ended_now > 0;
}

/* The cycle ------------------------------------------------------------------------------------------- */

/* Results are in: process them, and go on deciding unless somebody wants to know who ended. */
static bool results(Core *core, double now_s) {
    bool has_ended = update(core, now_s);
    core->is_stalled = false;
    core->is_mid_turn = has_ended && core->stops_at_ends;
    wait_until(core, TURN, now_s);
    return !core->is_mid_turn;
}

static void turn_sync(Core *core, double now_s) {
    if (core->doing == RESULTS && !results(core, now_s)) return;
    while (has_work(core)) {
        if (schedule_batch(core, now_s)) {
            wait_until(core, RESULTS, core_first_step(core)->end_s);
            return;
        }
    }
    core->doing = IDLE;
}

/* Two batches are kept on their way: see `Replica._run_async`. */
static void turn_async(Core *core, double now_s) {
    if (core->doing == RESULTS && !results(core, now_s)) return;
    for (;;) {
        if (core->doing == HOST_DONE) {
            core->doing = TURN;
            if (core->num_steps_in_flight == 1) continue;
        } else if (has_work(core) && schedule_batch(core, now_s)) {
            int last = (core->first_step + core->num_steps_in_flight - 1) % MAX_STEPS_ON_THEIR_WAY;
            double wait_s = host_s(core, core->steps[last].num_requests);
            if (wait_s) {
                wait_until(core, HOST_DONE, now_s + wait_s);
                return;
            }
            if (core->num_steps_in_flight == 1) continue;
        }
        if (core->num_steps_in_flight) {
            if (core_first_step(core)->end_s > now_s) {
                wait_until(core, RESULTS, core_first_step(core)->end_s);
                return;
            }
            if (!results(core, now_s)) return;
        } else if (!has_work(core)) {
            core->doing = IDLE;
            return;
        }
    }
}

void replica_turn(Core *core) {
    core->is_mid_turn = false;
    if (core->is_async) turn_async(core, core->next_s);
    else turn_sync(core, core->next_s);
    if (++core->actions_since_signals >= 65536) {
        core->actions_since_signals = 0;
        if (PyErr_CheckSignals()) core_fail(core);
    }
}

bool replica_advance(Core *core, double until_s) {
    while (core->doing != IDLE && (core->next_s < until_s || core->is_mid_turn)) {
        replica_turn(core);
        if (core->is_mid_turn) return true;
    }
    return false;
}

/* Stop here: rows of the unfinished requests, without what is still on its way. */
void replica_close(Core *core) {
    scheduler_dissolve(core);
    for (Request *request = core->all.head; request; request = request->after) {
        request->num_computed_tokens -=
            request->num_in_flight_tokens - request->num_stale_output_tokens;
        request->num_preempted_tokens -= request->num_stale_output_tokens;
        request->num_scheduled_tokens -= request->num_in_flight_tokens;
        replica_request_row(core, request, UNFINISHED);
    }
}
