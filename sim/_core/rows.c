/* Rows as columns of eight-byte cells, which Python takes over without a copy. */
#include "core.h"

#define FIRST_ROWS 256

void table_init(Table *table, int num_columns) { table->num_columns = num_columns; }

void table_clear(Table *table) {
    for (int i = 0; i < table->num_columns; i++) Py_CLEAR(table->bytes[i]);
}

/* Room for `capacity` rows. Large arrays move without being copied (mremap). */
static int resize(Table *table, int64_t capacity) {
    table->capacity = 0; /* until all columns have the room */
    for (int i = 0; i < table->num_columns; i++) {
        Py_ssize_t size = (Py_ssize_t)(capacity * (int64_t)sizeof(Cell));
        if (!table->bytes[i]) table->bytes[i] = PyBytes_FromStringAndSize(NULL, size);
        else if (_PyBytes_Resize(&table->bytes[i], size)) return -1;
        if (!table->bytes[i]) return -1;
        table->cells[i] = (Cell *)(void *)PyBytes_AS_STRING(table->bytes[i]);
    }
    table->capacity = capacity;
    return 0;
}

int64_t table_row(Core *core, Table *table) {
    if (table->count == table->capacity &&
        resize(table, table->capacity ? 2 * table->capacity : FIRST_ROWS))
        core_fail(core);
    return table->count++;
}

/* (number of rows, bytes of each column) of the rows since the last call; None without any */
PyObject *table_take(Table *table) {
    if (!table->count) Py_RETURN_NONE;
    int64_t count = table->count;
    PyObject *columns = PyTuple_New(table->num_columns);
    if (!columns || resize(table, count)) {
        Py_XDECREF(columns);
        return NULL;
    }
    for (int i = 0; i < table->num_columns; i++) {
        PyTuple_SET_ITEM(columns, i, table->bytes[i]);
        table->bytes[i] = NULL;
    }
    table->count = table->capacity = 0;
    return Py_BuildValue("(LN)", (long long)count, columns);
}
