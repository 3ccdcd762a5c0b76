/* The decisions: `LeapScheduler` over `Scheduler` and `AsyncScheduler`.
 *
 * Steps are decided one at a time, with the steady decodes as one: in C that is quick enough to
 * need no leaps, and the results are those of stepping by construction. */
#include "core.h"

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t num_tokens_of(const Request *request) {
    return request->num_prompt_tokens + request->num_output_tokens;
}

Step *core_first_step(Core *core) { return &core->steps[core->first_step]; }

static Step *new_step(Core *core) {
    int i = (core->first_step + core->num_steps_in_flight) % MAX_STEPS_ON_THEIR_WAY;
    Step *step = &core->steps[i];
    step->num_entries = step->num_preempted = step->num_cached_tokens = 0;
    step->num_decodes = step->decode_context_tokens = step->decode_max_context_tokens = 0;
    step->index = core->group.step;
    return step;
}

/* Lists ------------------------------------------------------------------------------------- */

static void running_append(Core *core, Request *request) {
    List *list = &core->running;
    request->running_before = list->tail;
    request->running_after = NULL;
    if (list->tail) list->tail->running_after = request;
    else list->head = request;
    list->tail = request;
    list->count++;
}

static void running_remove(Core *core, Request *request) {
    List *list = &core->running;
    if (request->running_before) request->running_before->running_after = request->running_after;
    else list->head = request->running_after;
    if (request->running_after) request->running_after->running_before = request->running_before;
    else list->tail = request->running_before;
    list->count--;
}

static void lagging_append(Core *core, Request *request) {
    if (request->is_lagging) return; /* keeps its place */
    List *list = &core->lagging;
    request->is_lagging = true;
    request->lagging_before = list->tail;
    request->lagging_after = NULL;
    if (list->tail) list->tail->lagging_after = request;
    else list->head = request;
    list->tail = request;
    list->count++;
}

static void lagging_remove(Core *core, Request *request) {
    if (!request->is_lagging) return;
    List *list = &core->lagging;
    request->is_lagging = false;
    if (request->lagging_before) request->lagging_before->lagging_after = request->lagging_after;
    else list->head = request->lagging_after;
    if (request->lagging_after) request->lagging_after->lagging_before = request->lagging_before;
    else list->tail = request->lagging_before;
    list->count--;
}

/* All who run lag: each stands on its own. */
static void lagging_reset(Core *core) {
    while (core->lagging.head) lagging_remove(core, core->lagging.head);
    for (Request *r = core->running.head; r; r = r->running_after) lagging_append(core, r);
}

/* From outside -------------------------------------------------------------------------------- */

void scheduler_add(Core *core, Request *request) {
    queue_add(core, &core->waiting, request);
    if (queue_peek(&core->waiting) == request) core->is_blocked = false;
}

bool scheduler_has_requests(const Core *core) {
    return core->all.count || core->has_finished_to_report;
}

static void free_request(Core *core, Request *request) {
    ledger_free(core, request);
    request->has_ended = true;
    List *list = &core->all;
    if (request->before) request->before->after = request->after;
    else list->head = request->after;
    if (request->after) request->after->before = request->before;
    else list->tail = request->before;
    list->count--;
    core->has_finished_to_report = true;
}

/* Give an ended request's memory back, once no step on its way names it. */
void core_recycle(Core *core, Request *request) {
    if (!request->has_ended || request->num_step_refs) return;
    content_drop(core, request);
    request->is_used = false;
    pool_give(&core->requests, request);
}

bool scheduler_abort(Core *core, Request *request) {
    if (request->is_member) scheduler_dissolve(core);
    core->is_blocked = false;
    if (request->status == RUNNING) {
        running_remove(core, request);
    } else {
        queue_remove(&core->waiting, request);
        queue_remove(&core->skipped, request);
    }
    request->status = FINISHED_ABORTED;
    free_request(core, request);
    lagging_remove(core, request);
    return true;
}

/* Running requests ------------------------------------------------------------------------------ */

static int64_t num_new_tokens_of_running(const Core *core, const Request *request) {
    int64_t placeholders = request->num_output_placeholders;
    int64_t computed = request->num_computed_tokens;
    if (placeholders && computed + 2 - placeholders >= request->num_prompt_tokens + request->max_tokens)
        return 0; /* a step in flight reaches max_tokens whatever it samples */
    int64_t lag = num_tokens_of(request) + placeholders - computed;
    if (0 < core->threshold && core->threshold < lag) lag = core->threshold;
    lag = min64(lag, core->token_budget_left);
    lag = min64(lag, core->input_budget_left);
    return min64(lag, core->max_model_len - computed - 1); /* room for the token to be sampled */
}

static void take(Core *core, Step *step, Request *request, int64_t num_tokens) {
    step->entries = core_grow(core, step->entries, &step->capacity, step->num_entries + 1,
                              sizeof(Entry));
    step->entries[step->num_entries++] = (Entry){request, num_tokens, false};
    request->step_tokens = num_tokens;
    core->token_budget_left -= num_tokens;
    core->input_budget_left -= num_tokens;
}

/* Take a victim that this step had already scheduled out of it again. */
static void refund(Core *core, Step *step, Request *victim) {
    if (!victim->step_tokens) return;
    core->token_budget_left += victim->step_tokens;
    core->input_budget_left += victim->step_tokens;
    victim->step_tokens = 0;
    int64_t i = 0;
    while (step->entries[i].request != victim) i++;
    for (step->num_entries--; i < step->num_entries; i++) step->entries[i] = step->entries[i + 1];
}

static Request *choose_victim(const Core *core) {
    if (!core->is_priority) return core->running.tail;
    /* The first of the largest in running order: the id breaks no tie here. */
    Request *victim = core->running.head;
    for (Request *r = victim->running_after; r; r = r->running_after)
        if (r->priority > victim->priority ||
            (r->priority == victim->priority && r->arrival_s > victim->arrival_s))
            victim = r;
    return victim;
}

static void preempt(Core *core, Request *request) {
    ledger_free(core, request);
    request->status = PREEMPTED;
    request->num_preempted_tokens += request->num_computed_tokens;
    request->num_computed_tokens = 0;
    /* What is in flight will still be delivered, but belongs to the progress just lost. */
    request->num_stale_output_tokens = request->num_in_flight_tokens;
    request->num_output_placeholders = 0;
    request->num_preemptions++;
    queue_prepend(core, &core->waiting, request);
}

/* False: the request had to preempt itself. */
static bool allocate_or_preempt(Core *core, Step *step, Request *request, int64_t num_new_tokens) {
    while (!ledger_allocate(core, request, num_new_tokens, NULL, false, true)) {
        Request *victim = choose_victim(core);
        running_remove(core, victim);
        refund(core, step, victim);
        preempt(core, victim);
        step->num_preempted++;
        if (victim == request) return false;
    }
    return true;
}

static void schedule_running(Core *core, Step *step) {
    /* Victims behind the request leave the list, so its successor is asked for afterwards. */
    for (Request *request = core->running.head; request; request = request->running_after) {
        if (core->token_budget_left <= 0 || core->input_budget_left <= 0) return;
        int64_t num_new_tokens = num_new_tokens_of_running(core, request);
        if (num_new_tokens <= 0) continue; /* passed over, but a later request may need less */
        if (!allocate_or_preempt(core, step, request, num_new_tokens)) return;
        take(core, step, request, num_new_tokens);
    }
}

/* Admissions ---------------------------------------------------------------------------------------- */

static int64_t num_cacheable(const Core *core, const Request *request) {
    return request->num_computed_tokens - (core->is_async ? 1 : 0);
}

/* Give a member the blocks taken for it, and make those of its tokens findable. */
static void write_blocks(Core *core, Request *request, int64_t num_cached_tokens) {
    int64_t block_size = core->ledger.block_size;
    request->num_blocks = (request->num_computed_tokens + block_size - 1) / block_size;
    ledger_cache(core, request, num_cached_tokens);
}

/* A prompt that continues what is being generated finds it as far as it is cached. */
static void show_authors(Core *core, const Request *request) {
    for (int64_t i = 0; i < request->num_pieces; i++) {
        Request *member = request->pieces[i].node->author;
        if (!member) continue;
        int64_t num_steps = group_steps_before(member, core->group.step);
        member->num_computed_tokens += num_steps;
        write_blocks(core, member, num_cacheable(core, member));
        member->num_computed_tokens -= num_steps;
    }
}

static int64_t num_new_tokens_of_waiting(const Core *core, const Request *request,
                                         int64_t num_cached) {
    int64_t budget = min64(core->token_budget_left, core->input_budget_left);
    int64_t num_new_tokens = num_tokens_of(request) - num_cached;
    if (0 < core->threshold && core->threshold < num_new_tokens) num_new_tokens = core->threshold;
    if (num_new_tokens > budget && !core->enable_chunked_prefill) return 0;
    return min64(num_new_tokens, budget);
}

static bool admit(Core *core, Step *step, Request *request, Queue *queue) {
    if (request->has_segments && core->num_authors) show_authors(core, request);
    ledger_find(core, request, &core->hit);
    int64_t num_cached = core->hit.num_blocks * core->ledger.block_size;
    int64_t num_new_tokens = num_new_tokens_of_waiting(core, request, num_cached);
    if (num_new_tokens <= 0) return false;
    if (!ledger_allocate(core, request, num_new_tokens, &core->hit, core->reserve_full_isl,
                         core->running.count > 0))
        return false;
    queue_remove(queue, request);
    running_append(core, request);
    request->admission_index = core->num_admissions++;
    if (request->status == PREEMPTED) {
        request->num_readmission_cached_tokens += num_cached;
    } else {
        request->num_cached_tokens = num_cached;
        request->first_scheduled_s = core->now_s;
    }
    step->num_cached_tokens += num_cached;
    request->status = RUNNING;
    request->num_computed_tokens = num_cached;
    take(core, step, request, num_new_tokens);
    return true;
}

static Queue *next_waiting_queue(Core *core) {
    Queue *waiting = &core->waiting, *skipped = &core->skipped;
    if (waiting->count && skipped->count && core->is_priority)
        return priority_compare(queue_peek(waiting), queue_peek(skipped)) < 0 ? waiting : skipped;
    if (skipped->count) return skipped;
    return waiting->count ? waiting : NULL;
}

static void schedule_waiting(Core *core, Step *step) {
    int64_t num_skipped = 0;
    Queue *queue;
    while (core->token_budget_left > 0 && core->input_budget_left > 0 &&
           core->running.count < core->max_num_seqs && (queue = next_waiting_queue(core))) {
        Request *request = queue_peek(queue);
        if (request->num_stale_output_tokens) {
            /* Output of before its preemption is in flight: admitted now, it could sample a
             * position that is about to be delivered. */
            core->skipped_now = core_grow(core, core->skipped_now, &core->skipped_now_capacity,
                                          num_skipped + 1, sizeof(Request *));
            core->skipped_now[num_skipped++] = queue_pop(queue);
            continue;
        }
        if (!admit(core, step, request, queue)) break;
    }
    while (num_skipped) queue_prepend(core, &core->skipped, core->skipped_now[--num_skipped]);
}

/* After the decision ------------------------------------------------------------------------------- */

/* Advance progress at once, so that the next step can be decided before this one ran. */
static void update_after_schedule(Core *core, Step *step) {
    for (int64_t i = 0; i < step->num_entries; i++) {
        Entry *entry = &step->entries[i];
        Request *request = entry->request;
        request->num_computed_tokens += entry->num_tokens;
        request->num_scheduled_tokens += entry->num_tokens;
        request->num_in_flight_tokens += entry->num_tokens;
        request->step_tokens = 0;
        request->num_step_refs++;
        request->is_prefill_chunk = request->num_computed_tokens <
                                    num_tokens_of(request) + request->num_output_placeholders;
        entry->is_sampling = !request->is_prefill_chunk;
        if (entry->is_sampling && core->is_async) request->num_output_placeholders++;
    }
}

/* Steps that a request still takes, its token on the way not counted. */
static int64_t num_steps_to_come(const Core *core, const Request *request) {
    int64_t limit = min64(request->max_tokens, core->max_model_len - request->num_prompt_tokens);
    if (request->stop_at && request->stop_at < limit) {
        if (core->is_async) return 0; /* an unforeseen stop is seen late */
        limit = request->stop_at;
    }
    int64_t num_on_the_way = request->num_output_placeholders ? request->num_output_placeholders : 1;
    return limit - request->num_output_tokens - num_on_the_way;
}

static void set_author(Core *core, Request *request, Request *author) {
    if (!request->num_pieces) return;
    Node *output = request->pieces[request->num_pieces - 1].node;
    core->num_authors += (author != NULL) - (output->author != NULL);
    output->author = author;
}

/* Let those whose known tokens end with this step join the group; the others lag. */
static void join_sampling(Core *core, Step *step) {
    for (int64_t i = 0; i < step->num_entries; i++)
        lagging_append(core, step->entries[i].request);
    for (int64_t i = 0; i < step->num_entries; i++) {
        Request *request = step->entries[i].request;
        if (!step->entries[i].is_sampling) continue;
        int64_t num_steps = num_steps_to_come(core, request);
        if (num_steps <= 0) continue;
        lagging_remove(core, request);
        group_join(core, &core->group, request, num_steps);
        set_author(core, request, request);
    }
}

static void retire(Core *core) {
    Request *member;
    while ((member = group_retire_next(&core->group))) {
        if (core->retired_first && core->retired_count == core->retired_capacity) {
            int64_t left = core->retired_count - core->retired_first;
            for (int64_t i = 0; i < left; i++)
                core->retired[i] = core->retired[core->retired_first + i];
            core->retired_first = 0;
            core->retired_count = left;
        }
        core->retired = core_grow(core, core->retired, &core->retired_capacity,
                                  core->retired_count + 1, sizeof(Request *));
        core->retired[core->retired_count++] = member;
    }
}

/* Whether its prompt holds what a member generates: what it finds grows with every step. */
static bool continues_member(const Core *core, const Request *request) {
    if (!request->has_segments || !core->num_authors) return false;
    for (int64_t i = 0; i < request->num_pieces; i++)
        if (request->pieces[i].node->author) return true;
    return false;
}

/* A step --------------------------------------------------------------------------------------------- */

/* Tokens for the lagging requests, taken off the budgets; -1 if the group is in the way, else the
 * blocks they need. Marks them in `step_tokens`. */
static int64_t plan_lagging(Core *core) {
    int64_t num_blocks = 0, block_size = core->ledger.block_size;
    for (Request *request = core->lagging.head; request; request = request->lagging_after) {
        bool stands_before_a_member = request->admission_index < core->group.last_joined_index;
        int64_t budget = min64(core->token_budget_left, core->input_budget_left);
        if (budget <= 0) {
            if (stands_before_a_member) return -1;
            break;
        }
        int64_t num_tokens = num_new_tokens_of_running(core, request);
        if (num_tokens == budget && stands_before_a_member) return -1;
        if (num_tokens <= 0) continue;
        if (continues_member(core, request)) return -1;
        request->step_tokens = num_tokens;
        core->token_budget_left -= num_tokens;
        core->input_budget_left -= num_tokens;
        int64_t num_slots = min64(request->num_computed_tokens + num_tokens, core->max_model_len);
        int64_t num_new = (num_slots + block_size - 1) / block_size - request->num_blocks;
        if (num_new > 0) num_blocks += num_new;
    }
    return num_blocks;
}

static void forget_plan(Core *core) {
    for (Request *r = core->lagging.head; r; r = r->lagging_after) r->step_tokens = 0;
}

/* Whether the head of waiting would be refused again: nothing was freed since it was, and what it
 * could find in the cache can't have grown. */
static bool stays_blocked(const Core *core) {
    return core->is_blocked && !core->lagging.count && !core->skipped.count &&
           core->retired_first == core->retired_count &&
           (!core->ledger.enable_caching || !queue_peek(&core->waiting)->has_segments);
}

/* Decide the next step with the group as one; NULL, nothing changed, if that can't be. */
static Step *begin_step(Core *core) {
    Group *group = &core->group;
    retire(core);
    core->token_budget_left = core->token_budget - group->size;
    core->input_budget_left = core->max_num_batched_tokens - group->size;
    if (core->token_budget_left < 0 || core->input_budget_left < 0) return NULL;
    int64_t num_lagging_blocks = plan_lagging(core);
    int64_t num_needed = group_blocks_needed(group);
    if (num_lagging_blocks < 0 || num_needed + num_lagging_blocks > ledger_num_free(&core->ledger)) {
        forget_plan(core);
        return NULL;
    }
    Step *step = new_step(core);
    if (num_needed) ledger_take(core, num_needed);
    for (Request *request = core->lagging.head; request; request = request->lagging_after) {
        int64_t num_tokens = request->step_tokens;
        if (!num_tokens) continue;
        ledger_allocate(core, request, num_tokens, NULL, false, true);
        core->token_budget_left += num_tokens; /* `take` takes them off again */
        core->input_budget_left += num_tokens;
        take(core, step, request, num_tokens);
    }
    step->num_decodes = group->size;
    step->decode_context_tokens = group->context_tokens + group->size;
    step->decode_max_context_tokens = group->size ? group_max_context_tokens(group) + 1 : 0;
    group->step++;
    group->context_tokens += group->size;
    if ((core->waiting.count || core->skipped.count) && !stays_blocked(core)) {
        schedule_waiting(core, step);
        core->is_blocked = !step->num_entries && !core->skipped.count;
    }
    update_after_schedule(core, step);
    join_sampling(core, step);
    return step;
}

/* The decision request by request, for steps that the group can't take as one. */
static Step *schedule(Core *core) {
    Step *step = new_step(core);
    core->token_budget_left = core->token_budget;
    core->input_budget_left = core->max_num_batched_tokens;
    schedule_running(core, step);
    if (!step->num_preempted) schedule_waiting(core, step);
    update_after_schedule(core, step);
    core->group.step++;
    core->is_blocked = false;
    lagging_reset(core);
    join_sampling(core, step);
    return step;
}

Step *scheduler_next_step(Core *core, double now_s) {
    core->now_s = now_s;
    Step *step = begin_step(core);
    if (!step) {
        scheduler_dissolve(core);
        step = schedule(core);
    }
    step->reports_finished = core->has_finished_to_report;
    core->has_finished_to_report = false;
    if (step->num_decodes || step->num_entries) core->num_steps_in_flight++;
    return step;
}

/* The group dissolves ---------------------------------------------------------------------------------- */

static bool takes_part(const Request *member, int64_t index) {
    return member->join_step <= index && index <= member->last_step;
}

static int by_admission(const void *a, const void *b) {
    const Entry *first = a, *second = b;
    int64_t i = first->request->admission_index, j = second->request->admission_index;
    return (i > j) - (i < j);
}

static int64_t num_members(const Core *core) {
    return core->retired_count - core->retired_first + core->group.count;
}

/* All members, those retired first. */
static Request *member_at(const Core *core, int64_t i) {
    int64_t num_retired = core->retired_count - core->retired_first;
    return i < num_retired ? core->retired[core->retired_first + i]
                           : core->group.heap[i - num_retired];
}

/* Turn the group's part of a step on its way into entries. */
static void spell_out(Core *core, Step *step) {
    if (!step->num_decodes) return;
    for (int64_t i = 0; i < num_members(core); i++) {
        Request *member = member_at(core, i);
        if (!takes_part(member, step->index)) continue;
        step->entries = core_grow(core, step->entries, &step->capacity, step->num_entries + 1,
                                  sizeof(Entry));
        step->entries[step->num_entries++] = (Entry){member, 1, true};
        member->num_step_refs++;
    }
    qsort(step->entries, (size_t)step->num_entries, sizeof(Entry), by_admission);
    step->num_decodes = step->decode_context_tokens = step->decode_max_context_tokens = 0;
}

static void write_back(Core *core, Request *member, int64_t num_processed) {
    int64_t num_scheduled = group_steps_before(member, core->group.step);
    int64_t num_done = group_steps_before(member, num_processed);
    member->num_computed_tokens += num_scheduled;
    member->num_scheduled_tokens += num_scheduled;
    member->num_output_tokens += num_done;
    write_blocks(core, member, num_cacheable(core, member));
    member->num_in_flight_tokens += num_scheduled - num_done;
    if (core->is_async) member->num_output_placeholders += num_scheduled - num_done;
    /* Its last token came with the last step. */
    if (num_done) member->last_token_s = core->last_result_s;
}

void scheduler_dissolve(Core *core) {
    Group *group = &core->group;
    int64_t num_processed = core->num_steps_in_flight ? core_first_step(core)->index : group->step;
    for (int i = 0; i < core->num_steps_in_flight; i++)
        spell_out(core, &core->steps[(core->first_step + i) % MAX_STEPS_ON_THEIR_WAY]);
    for (int64_t i = 0; i < num_members(core); i++) {
        Request *member = member_at(core, i);
        write_back(core, member, num_processed);
        member->is_member = false;
        set_author(core, member, NULL);
    }
    core->retired_first = core->retired_count = 0;
    group->count = group->num_contexts = group->size = group->context_tokens = 0;
    group->last_joined_index = -1;
    for (int64_t i = 0; i < group->block_size; i++) group->phases[i] = 0;
    lagging_reset(core);
}

/* The results -------------------------------------------------------------------------------------------- */

/* Count one more output token; true, and the final status, if it is the last. */
static bool append_output_token(const Core *core, Request *request) {
    request->num_output_tokens++;
    if (request->num_output_tokens == request->stop_at) {
        request->status = FINISHED_STOPPED;
        return true;
    }
    if (request->num_output_tokens >= request->max_tokens ||
        num_tokens_of(request) >= core->max_model_len) {
        request->status = FINISHED_LENGTH;
        return true;
    }
    return false;
}

static void note_end(Core *core, Request *request) {
    core->ended = core_grow(core, core->ended, &core->ended_capacity, core->num_ended_now + 1,
                            sizeof(Request *));
    core->ended[core->num_ended_now++] = request;
}

/* One entry's result: a token if it samples. */
static void process_entry(Core *core, const Entry *entry, double now_s, int64_t *num_emitted,
                          int64_t *num_first, int64_t *num_gaps) {
    Request *request = entry->request;
    request->num_step_refs--;
    if (request->has_ended) { /* while in flight */
        core_recycle(core, request);
        return;
    }
    request->num_in_flight_tokens -= entry->num_tokens;
    bool is_stale = request->num_stale_output_tokens > 0;
    if (is_stale) request->num_stale_output_tokens -= entry->num_tokens;
    if (!entry->is_sampling) return;
    bool was_running = request->status == RUNNING;
    bool stopped = append_output_token(core, request);
    if (core->is_async) {
        if (!is_stale) request->num_output_placeholders--;
        /* A placeholder's block could not be hashed when it was allocated. */
        if (was_running)
            ledger_cache(core, request,
                         request->num_computed_tokens - request->num_output_placeholders);
    }
    if (stopped) note_end(core, request);
    (*num_emitted)++;
    if (request->num_output_tokens == 1) {
        request->first_token_s = now_s;
        (*num_first)++;
    } else if (request->last_token_s == core->last_result_s) {
        (*num_gaps)++;
    } else {
        replica_record_gap(core, request, now_s - request->last_token_s);
    }
    request->last_token_s = now_s;
}

/* Write back and stop the members whose last step this was; nothing is freed. */
static void end_members(Core *core, int64_t index, double now_s) {
    retire(core);
    while (core->retired_first < core->retired_count &&
           core->retired[core->retired_first]->last_step <= index) {
        Request *request = core->retired[core->retired_first++];
        int64_t num_steps = group_steps_before(request, core->group.step);
        request->num_computed_tokens += num_steps;
        request->num_scheduled_tokens += num_steps;
        request->num_output_tokens += num_steps - 1;
        write_blocks(core, request, request->num_computed_tokens);
        append_output_token(core, request);
        request->is_member = false;
        set_author(core, request, NULL);
        request->last_token_s = now_s;
        note_end(core, request);
    }
    if (core->retired_first == core->retired_count) core->retired_first = core->retired_count = 0;
}

static int request_by_admission(const void *a, const void *b) {
    int64_t i = (*(Request *const *)a)->admission_index, j = (*(Request *const *)b)->admission_index;
    return (i > j) - (i < j);
}

/* Process the oldest step on its way. Returns the tokens emitted; those who ended are in
 * `core->ended`, in running order, freed but not recycled. */
int64_t scheduler_process(Core *core, Step *step, double now_s, int64_t *num_first,
                          int64_t *num_gaps) {
    int64_t num_emitted = step->num_decodes;
    *num_gaps = step->num_decodes;
    *num_first = 0;
    core->num_ended_now = 0;
    core->first_step = (core->first_step + 1) % MAX_STEPS_ON_THEIR_WAY;
    core->num_steps_in_flight--;
    for (int64_t i = 0; i < step->num_entries; i++)
        process_entry(core, &step->entries[i], now_s, &num_emitted, num_first, num_gaps);
    end_members(core, step->index, now_s);
    if (!core->num_ended_now) return num_emitted;
    core->is_blocked = false;
    if (core->num_ended_now > 1)
        qsort(core->ended, (size_t)core->num_ended_now, sizeof(Request *), request_by_admission);
    for (int64_t i = 0; i < core->num_ended_now; i++) {
        Request *request = core->ended[i];
        lagging_remove(core, request);
        if (request->queued_in == NOT_QUEUED) {
            running_remove(core, request);
        } else { /* stopped by output that was in flight when it was preempted */
            queue_remove(&core->waiting, request);
            queue_remove(&core->skipped, request);
        }
        free_request(core, request);
    }
    return num_emitted;
}
