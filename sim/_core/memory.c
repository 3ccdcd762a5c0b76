/* Slabs, growing arrays, and the way out when something fails. */
#include "core.h"

_Noreturn void core_fail(Core *core) {
    core->is_broken = true;
    longjmp(core->on_error, 1);
}

_Noreturn void core_no_memory(Core *core) {
    PyErr_NoMemory();
    core_fail(core);
}

void *core_grow(Core *core, void *array, int64_t *capacity, int64_t needed, size_t item_size) {
    if (needed <= *capacity) return array;
    int64_t grown = *capacity < 2 ? 2 : *capacity * 2;
    if (grown < needed) grown = needed;
    /* The old array stays owned by its place in the core if this fails. */
    void *moved = PyMem_Realloc(array, (size_t)grown * item_size);
    if (!moved) core_no_memory(core);
    *capacity = grown;
    return moved;
}

void *pool_take(Core *core, Pool *pool) {
    if (!pool->free_list) {
        int64_t count = pool->slabs ? pool->slabs->count * 2 : 16;
        if (count > 4096) count = 4096;
        Slab *slab = PyMem_Calloc(1, sizeof(Slab) + (size_t)count * pool->item_size);
        if (!slab) core_no_memory(core);
        slab->next = pool->slabs;
        slab->count = count;
        pool->slabs = slab;
        char *items = (char *)(slab + 1);
        for (int64_t i = count; i-- > 0;) pool_give(pool, items + (size_t)i * pool->item_size);
    }
    void *item = pool->free_list;
    pool->free_list = *(void **)item;
    return item;
}

void pool_give(Pool *pool, void *item) {
    *(void **)item = pool->free_list;
    pool->free_list = item;
}
