/* Queues of requests that wait: first come, first served (a linked list), or by a key (a heap). */
#include "core.h"

int priority_compare(const Request *a, const Request *b) {
    if (a->priority != b->priority) return a->priority < b->priority ? -1 : 1;
    if (a->arrival_s != b->arrival_s) return a->arrival_s < b->arrival_s ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

static void sift_up(Request **heap, int64_t i) {
    Request *request = heap[i];
    while (i && priority_compare(request, heap[(i - 1) / 2]) < 0) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = request;
}

static void sift_down(Request **heap, int64_t count, int64_t i) {
    Request *request = heap[i];
    for (int64_t child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && priority_compare(heap[child + 1], heap[child]) < 0) child++;
        if (priority_compare(request, heap[child]) <= 0) break;
        heap[i] = heap[child];
    }
    heap[i] = request;
}

static void heap_add(Core *core, Queue *queue, Request *request) {
    queue->heap = core_grow(core, queue->heap, &queue->capacity, queue->count + 1,
                            sizeof(Request *));
    queue->heap[queue->count++] = request;
    sift_up(queue->heap, queue->count - 1);
}

static void heap_remove_at(Queue *queue, int64_t i) {
    Request *last = queue->heap[--queue->count];
    if (i == queue->count) return;
    queue->heap[i] = last;
    sift_down(queue->heap, queue->count, i);
    if (queue->heap[i] == last) sift_up(queue->heap, i);
}

void queue_add(Core *core, Queue *queue, Request *request) {
    request->queued_in = queue->which;
    if (queue->is_keyed) {
        heap_add(core, queue, request);
        return;
    }
    request->queue_before = queue->tail;
    request->queue_after = NULL;
    if (queue->tail) queue->tail->queue_after = request;
    else queue->head = request;
    queue->tail = request;
    queue->count++;
}

void queue_prepend(Core *core, Queue *queue, Request *request) {
    request->queued_in = queue->which;
    if (queue->is_keyed) {
        heap_add(core, queue, request);
        return;
    }
    request->queue_before = NULL;
    request->queue_after = queue->head;
    if (queue->head) queue->head->queue_before = request;
    else queue->tail = request;
    queue->head = request;
    queue->count++;
}

Request *queue_peek(const Queue *queue) {
    if (!queue->count) return NULL;
    return queue->is_keyed ? queue->heap[0] : queue->head;
}

void queue_remove(Queue *queue, Request *request) {
    if (request->queued_in != queue->which) return;
    request->queued_in = NOT_QUEUED;
    if (queue->is_keyed) {
        int64_t i = 0;
        while (queue->heap[i] != request) i++;
        heap_remove_at(queue, i);
        return;
    }
    if (request->queue_before) request->queue_before->queue_after = request->queue_after;
    else queue->head = request->queue_after;
    if (request->queue_after) request->queue_after->queue_before = request->queue_before;
    else queue->tail = request->queue_before;
    queue->count--;
}

Request *queue_pop(Queue *queue) {
    Request *request = queue_peek(queue);
    if (request) queue_remove(queue, request);
    return request;
}
