/* Rows as columns of eight-byte cells, in chunks that Python takes over without a copy. */
#include "core.h"

#define FIRST_CHUNK_ROWS 256
#define MOST_CHUNK_ROWS 65536

int table_init(Table *table, int num_columns) {
    table->num_columns = num_columns;
    table->full = PyList_New(0);
    return table->full ? 0 : -1;
}

void table_clear(Table *table) {
    for (int i = 0; i < table->num_columns; i++) Py_CLEAR(table->bytes[i]);
    Py_CLEAR(table->full);
}

/* Put the chunk's rows among the full ones. -1 with an exception if there is no memory. */
static int close_chunk(Table *table) {
    if (!table->count) return 0;
    PyObject *columns = PyTuple_New(table->num_columns);
    if (!columns) return -1;
    for (int i = 0; i < table->num_columns; i++) {
        PyTuple_SET_ITEM(columns, i, table->bytes[i]);
        table->bytes[i] = NULL;
    }
    PyObject *chunk = Py_BuildValue("(LN)", (long long)table->count, columns);
    table->count = table->capacity = 0;
    if (!chunk) return -1;
    int result = PyList_Append(table->full, chunk);
    Py_DECREF(chunk);
    return result;
}

static int open_chunk(Table *table) {
    int64_t rows = PyList_GET_SIZE(table->full) ? MOST_CHUNK_ROWS : FIRST_CHUNK_ROWS;
    for (int i = 0; i < table->num_columns; i++) {
        Py_XSETREF(table->bytes[i], PyBytes_FromStringAndSize(NULL, rows * (int64_t)sizeof(Cell)));
        if (!table->bytes[i]) return -1;
        table->cells[i] = (Cell *)(void *)PyBytes_AS_STRING(table->bytes[i]);
    }
    table->capacity = rows;
    return 0;
}

int64_t table_row(Core *core, Table *table) {
    if (table->count == table->capacity) {
        if (close_chunk(table) || open_chunk(table)) core_fail(core);
    }
    return table->count++;
}

PyObject *table_take(Table *table) {
    if (close_chunk(table)) return NULL;
    PyObject *fresh = PyList_New(0);
    if (!fresh) return NULL;
    PyObject *full = table->full;
    table->full = fresh;
    return full;
}
