/* Content without tokens: pieces after prefixes, each known once.
 *
 * Python names a piece by a digest of what came before it; here the same identity is a pointer: a
 * table finds the Node of (prefix, segment), so equal content has equal Nodes, exactly. */
#include "core.h"

static uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ (hash >> 29);
}

static void table_grow(Core *core) {
    NodeTable *table = &core->table;
    uint64_t num_buckets = table->num_buckets ? table->num_buckets * 2 : 64;
    Node **buckets = PyMem_Calloc(num_buckets, sizeof(Node *));
    if (!buckets) core_no_memory(core);
    for (uint64_t i = 0; i < table->num_buckets; i++) {
        for (Node *node = table->buckets[i], *next; node; node = next) {
            next = node->chain;
            Node **bucket = &buckets[node->hash & (num_buckets - 1)];
            node->chain = *bucket;
            *bucket = node;
        }
    }
    PyMem_Free(table->buckets);
    table->buckets = buckets;
    table->num_buckets = num_buckets;
}

/* The piece that this segment is after a prefix, with a reference for the caller. */
static Node *node_get(Core *core, Node *parent, int64_t parent_tokens, int64_t kind, int64_t id) {
    NodeTable *table = &core->table;
    if (table->num_nodes >= table->num_buckets) table_grow(core);
    uint64_t hash = mix(mix(mix((uint64_t)(uintptr_t)parent >> 4, (uint64_t)parent_tokens),
                            (uint64_t)id), (uint64_t)kind);
    Node **bucket = &table->buckets[hash & (table->num_buckets - 1)];
    for (Node *node = *bucket; node; node = node->chain) {
        if (node->hash == hash && node->parent == parent && node->parent_tokens == parent_tokens &&
            node->id == id && node->kind == kind) {
            node->num_refs++;
            return node;
        }
    }
    Node *node = pool_take(core, &core->nodes);
    *node = (Node){.parent = parent, .parent_tokens = parent_tokens, .kind = kind, .id = id,
                   .hash = hash, .chain = *bucket, .num_refs = 1};
    *bucket = node;
    table->num_nodes++;
    if (parent) parent->num_refs++;
    return node;
}

void node_ref(Node *node) { node->num_refs++; }

void node_unref(Core *core, Node *node) {
    NodeTable *table = &core->table;
    while (node && --node->num_refs == 0) {
        Node **link = &table->buckets[node->hash & (table->num_buckets - 1)];
        while (*link != node) link = &(*link)->chain;
        *link = node->chain;
        table->num_nodes--;
        Node *parent = node->parent;
        pool_give(&core->nodes, node);
        node = parent;
    }
}

void content_make(Core *core, Request *request, const Segment *segments, int64_t count) {
    Segment own = {SEGMENT_OWN, request->id, request->num_prompt_tokens};
    request->has_segments = count > 0;
    if (!count) {
        segments = &own;
        count = 1;
    }
    request->pieces = core_grow(core, request->pieces, &request->pieces_capacity, count + 1,
                                sizeof(Piece));
    int64_t start = 0, prefix_tokens = 0;
    Node *prefix = NULL;
    for (int64_t i = 0; i <= count; i++) {
        bool is_output = i == count;
        if (!is_output && segments[i].num_tokens == 0) continue;
        Node *node = is_output ? node_get(core, prefix, prefix_tokens, SEGMENT_OUTPUT, request->id)
                               : node_get(core, prefix, prefix_tokens, segments[i].kind,
                                          segments[i].id);
        request->pieces[request->num_pieces++] = (Piece){start, node};
        prefix = node;
        prefix_tokens = is_output ? 0 : segments[i].num_tokens;
        start += prefix_tokens;
    }
}

void content_drop(Core *core, Request *request) {
    while (request->num_pieces) node_unref(core, request->pieces[--request->num_pieces].node);
}

bool content_next_extent(const Request *request, int64_t *piece, int64_t *first, int64_t end,
                         int64_t block_size, Node **node, int64_t *lo, int64_t *hi) {
    const Piece *pieces = request->pieces;
    int64_t count = request->num_pieces;
    if (*piece < 0) {
        /* the first piece that does not begin before the end of block `first` (bisect_left) */
        int64_t wanted = (*first + 1) * block_size, low = 0, high = count;
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (pieces[middle].start < wanted) low = middle + 1;
            else high = middle;
        }
        *piece = low - 1;
    }
    while (*first < end) {
        (*piece)++;
        int64_t stop = end;
        if (*piece < count && pieces[*piece].start / block_size < end)
            stop = pieces[*piece].start / block_size;
        if (stop > *first) {
            *node = pieces[*piece - 1].node;
            *lo = *first;
            *hi = stop;
            *first = stop;
            return true;
        }
    }
    return false;
}
