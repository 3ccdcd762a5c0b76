/* Requests that decode one token a step, as sums: `DecodeGroup`. */
#include "core.h"

static bool ends_before(const Request *a, const Request *b) {
    if (a->last_step != b->last_step) return a->last_step < b->last_step;
    return a->admission_index < b->admission_index;
}

static int64_t modulo(int64_t value, int64_t divisor) {
    int64_t rest = value % divisor;
    return rest < 0 ? rest + divisor : rest;
}

/* Contexts, longest first. -------------------------------------------------------------------- */

static void push_context(Core *core, Group *group, Context context) {
    group->longest = core_grow(core, group->longest, &group->contexts_capacity,
                               group->num_contexts + 1, sizeof(Context));
    int64_t i = group->num_contexts++;
    while (i && context.offset > group->longest[(i - 1) / 2].offset) {
        group->longest[i] = group->longest[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    group->longest[i] = context;
}

static void pop_context(Group *group) {
    Context context = group->longest[--group->num_contexts];
    int64_t i = 0;
    for (int64_t child; (child = 2 * i + 1) < group->num_contexts; i = child) {
        if (child + 1 < group->num_contexts &&
            group->longest[child + 1].offset > group->longest[child].offset)
            child++;
        if (group->longest[child].offset <= context.offset) break;
        group->longest[i] = group->longest[child];
    }
    group->longest[i] = context;
}

int64_t group_max_context_tokens(Group *group) {
    while (group->num_contexts && group->longest[0].last_step < group->step) pop_context(group);
    return group->num_contexts ? group->step + group->longest[0].offset : 0;
}

/* Members. -------------------------------------------------------------------------------------- */

void group_join(Core *core, Group *group, Request *request, int64_t num_steps) {
    request->is_member = true;
    request->join_step = group->step;
    request->last_step = group->step + num_steps - 1;
    request->phase = modulo(request->num_computed_tokens - group->step, group->block_size);
    group->heap = core_grow(core, group->heap, &group->capacity, group->count + 1,
                            sizeof(Request *));
    int64_t i = group->count++;
    while (i && ends_before(request, group->heap[(i - 1) / 2])) {
        group->heap[i] = group->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    group->heap[i] = request;
    push_context(core, group, (Context){request->num_computed_tokens - group->step,
                                        request->last_step});
    group->phases[request->phase]++;
    group->size++;
    group->context_tokens += request->num_computed_tokens;
    if (request->admission_index > group->last_joined_index)
        group->last_joined_index = request->admission_index;
}

static void pop_first(Group *group) {
    Request *request = group->heap[--group->count];
    int64_t i = 0;
    for (int64_t child; (child = 2 * i + 1) < group->count; i = child) {
        if (child + 1 < group->count && ends_before(group->heap[child + 1], group->heap[child]))
            child++;
        if (!ends_before(group->heap[child], request)) break;
        group->heap[i] = group->heap[child];
    }
    group->heap[i] = request;
}

int64_t group_steps_before(const Request *member, int64_t step) {
    int64_t end = member->last_step + 1 < step ? member->last_step + 1 : step;
    return end > member->join_step ? end - member->join_step : 0;
}

Request *group_retire_next(Group *group) {
    if (!group->count || group->heap[0]->last_step >= group->step) {
        if (!group->size) group->last_joined_index = -1;
        return NULL;
    }
    Request *member = group->heap[0];
    pop_first(group);
    group->phases[member->phase]--;
    group->size--;
    group->context_tokens -= member->num_computed_tokens + group_steps_before(member, group->step);
    return member;
}

int64_t group_blocks_needed(const Group *group) {
    return group->phases[modulo(-group->step, group->block_size)];
}
