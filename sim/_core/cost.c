/* Step times: the formulas of `calibration`, operation by operation, so that every bit agrees.
 *
 * A model whose form is not known here is asked in Python: a step at a time, or for runs of decode
 * steps through `decode_times_s`, whose elements are those of `step_time_s`. */
#include "core.h"

#define MOST_STEPS_AHEAD 512

/* Interpolation (calibration/interpolation.py). ---------------------------------------------- */

static int64_t bisect_right(const double *values, int64_t count, double x) {
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (x < values[middle]) high = middle;
        else low = middle + 1;
    }
    return low;
}

static double not_negative(double value) { return 0.0 > value ? 0.0 : value; }

static double line_at(const Line *line, double x) {
    int64_t i = bisect_right(line->x, line->count, x) - 1;
    if (i < 0) return line->y[0];
    return line->y[i] + line->slope[i] * (x - line->x[i]);
}

/* As `Grid.at`, which differs from the line of `Grid.row` nowhere. */
static double grid_at(const Grid *grid, double row, double column) {
    int64_t last = grid->num_columns - 1;
    int64_t j = bisect_right(grid->columns, grid->num_columns, column) - 1;
    if (j < 0) return line_at(&grid->down[0], row);
    int64_t left = j < last - 1 ? j : last - 1;
    double y0 = line_at(&grid->down[left], row);
    double y1 = line_at(&grid->down[left + 1], row);
    double slope = (y1 - y0) / (grid->columns[left + 1] - grid->columns[left]);
    if (j == last) return y1 + not_negative(slope) * (column - grid->columns[last]);
    return y0 + slope * (column - grid->columns[left]);
}

static double box_at(const Box *box, double layer, double row, double column) {
    int64_t i = bisect_right(box->layers, box->num_layers, layer) - 1;
    if (i < 0 || i == box->num_layers - 1)
        return grid_at(&box->grids[i < 0 ? 0 : i], row, column);
    double low = grid_at(&box->grids[i], row, column);
    double share = (layer - box->layers[i]) / (box->layers[i + 1] - box->layers[i]);
    return low + share * (grid_at(&box->grids[i + 1], row, column) - low);
}

/* The models. ------------------------------------------------------------------------------------ */

static double linear_s(const Cost *cost, const Shape *shape) {
    int64_t context = shape->decode_context_tokens;
    for (int64_t i = 0; i < shape->num_chunks; i++)
        context += shape->chunks[i][0] + shape->chunks[i][1];
    double fixed_s = cost->base_s + cost->per_token_s * (double)shape->num_tokens +
                     cost->per_logit_s * (double)shape->num_logits;
    return fixed_s + cost->per_context_token_s * (double)context;
}

static double gemm_s(const Gemm *gemm, double rows) {
    double arithmetic_s = rows * gemm->flops_s;
    double traffic_s = gemm->weights_s + rows * gemm->rows_s;
    return arithmetic_s > traffic_s ? arithmetic_s : traffic_s;
}

static double roofline_s(const Cost *cost, const Shape *shape) {
    double num_tokens = (double)shape->num_tokens;
    double rows = shape->num_logits > 0 ? (double)shape->num_logits : 1.0;
    int64_t context = shape->decode_context_tokens;
    double pairs = (double)context;
    for (int64_t i = 0; i < shape->num_chunks; i++) {
        int64_t new = shape->chunks[i][0], computed = shape->chunks[i][1];
        pairs += (double)new * ((double)computed + (double)(new + 1) * 0.5);
        context += new + computed;
    }
    double arithmetic_s = pairs * cost->pair_s;
    double traffic_s = num_tokens * cost->attention_token_s + (double)context * cost->kv_s;
    double attention_s = arithmetic_s > traffic_s ? arithmetic_s : traffic_s;
    double total_s = gemm_s(&cost->gemms[0], num_tokens);
    for (int i = 1; i < 4; i++) total_s += gemm_s(&cost->gemms[i], num_tokens);
    total_s += gemm_s(&cost->head, rows);
    total_s = total_s + num_tokens * cost->token_s + rows * cost->sampler_s + cost->overhead_s;
    return total_s + attention_s;
}

/* What contexts of unlike length add: a share of what it would take if all were the longest. */
static double with_skew(double even_s, double longest_s, const Line *shares, double num_decodes) {
    return even_s + line_at(shares, num_decodes) * (longest_s - even_s);
}

static double decodes_s(const Cost *cost, const Shape *shape, const Line *shares) {
    double num_decodes = (double)shape->num_decodes;
    double mean = (double)shape->decode_context_tokens / num_decodes;
    double longest = (double)shape->decode_max_context_tokens;
    double even_s = grid_at(&cost->decode, num_decodes, mean);
    if (!shares || longest <= mean) return even_s;
    return with_skew(even_s, grid_at(&cost->decode, num_decodes, longest), shares, num_decodes);
}

static double decodes_beside_s(const Cost *cost, const Shape *shape, double num_new) {
    double num_decodes = (double)shape->num_decodes;
    double mean = (double)shape->decode_context_tokens / num_decodes;
    double longest = (double)shape->decode_max_context_tokens;
    double even_s = box_at(&cost->beside, num_new, num_decodes, mean);
    if (!cost->has_skew_beside || longest <= mean) return even_s;
    double longest_s = box_at(&cost->beside, num_new, num_decodes, longest);
    return with_skew(even_s, longest_s, &cost->skew_beside, num_decodes);
}

static double profile_chunks_s(const Cost *cost, const Shape *shape) {
    double total_s = -cost->launch_s * (double)(shape->num_chunks - 1);
    int64_t num_new = 0;
    for (int64_t i = 0; i < shape->num_chunks; i++) {
        total_s += grid_at(&cost->prefill, (double)shape->chunks[i][0], (double)shape->chunks[i][1]);
        num_new += shape->chunks[i][0];
    }
    if (!shape->num_decodes) return total_s;
    if (cost->has_beside) return total_s + decodes_beside_s(cost, shape, (double)num_new);
    const Line *shares = cost->has_skew_beside ? &cost->skew_beside : NULL;
    return total_s + (decodes_s(cost, shape, shares) - cost->launch_s);
}

static double profile_s(const Cost *cost, const Shape *shape) {
    double rows = shape->num_logits > 1 ? (double)shape->num_logits : 1.0;
    double total_s = line_at(&cost->dense, (double)shape->num_tokens) +
                     line_at(&cost->logits, rows);
    if (shape->num_chunks) {
        total_s += profile_chunks_s(cost, shape);
    } else if (shape->num_decodes) {
        total_s += decodes_s(cost, shape, cost->has_skew ? &cost->skew : NULL);
    }
    return total_s + cost->overhead_s;
}

/* Models in Python. ---------------------------------------------------------------------------------- */

static double python_step_s(Core *core, const Shape *shape) {
    const Cost *cost = &core->cost;
    PyObject *chunks = PyTuple_New(shape->num_chunks);
    for (int64_t i = 0; chunks && i < shape->num_chunks; i++) {
        PyObject *chunk = Py_BuildValue("(LL)", (long long)shape->chunks[i][0],
                                        (long long)shape->chunks[i][1]);
        if (!chunk) Py_CLEAR(chunks);
        else PyTuple_SET_ITEM(chunks, i, chunk);
    }
    if (!chunks) core_fail(core);
    PyObject *seen = PyObject_CallFunction(
        cost->shape_type, "LLLLNL", (long long)shape->num_tokens, (long long)shape->num_logits,
        (long long)shape->num_decodes, (long long)shape->decode_context_tokens, chunks,
        (long long)shape->decode_max_context_tokens);
    if (!seen) core_fail(core);
    PyObject *time_s = PyObject_CallOneArg(cost->step_time_s, seen);
    Py_DECREF(seen);
    if (!time_s) core_fail(core);
    double value = PyFloat_AsDouble(time_s);
    Py_DECREF(time_s);
    if (PyErr_Occurred()) core_fail(core);
    return value;
}

/* Ask for the times of the steps to come, should all be the group's alone. */
static void look_ahead(Core *core, const Shape *shape) {
    Cost *cost = &core->cost;
    cost->num_ahead = 0;
    /* Until its first member ends; others may join before, and then the rest is asked anew. */
    int64_t num_steps = MOST_STEPS_AHEAD;
    if (core->group.count && core->group.heap[0]->last_step - core->group.step + 2 < num_steps)
        num_steps = core->group.heap[0]->last_step - core->group.step + 2;
    PyObject *times = PyObject_CallFunction(
        cost->decode_times_s, "LLLL", (long long)shape->num_decodes,
        (long long)shape->decode_context_tokens, (long long)num_steps,
        (long long)shape->decode_max_context_tokens);
    if (!times) core_fail(core);
    Py_buffer view;
    int failed = PyObject_GetBuffer(times, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT);
    Py_DECREF(times);
    if (failed) core_fail(core);
    if (view.len < num_steps * 8 || view.itemsize != 8 || !view.format || strcmp(view.format, "d")) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_TypeError, "decode_times_s must give num_steps float64 values");
        core_fail(core);
    }
    memcpy(cost->ahead, view.buf, (size_t)num_steps * 8);
    PyBuffer_Release(&view);
    cost->num_ahead = num_steps;
    cost->ahead_size = shape->num_decodes;
    cost->ahead_context = shape->decode_context_tokens;
    cost->ahead_max_context = shape->decode_max_context_tokens;
}

static double python_decode_s(Core *core, const Shape *shape) {
    Cost *cost = &core->cost;
    for (int tries = 0;; tries++) {
        int64_t ahead = shape->decode_context_tokens - cost->ahead_context;
        if (cost->num_ahead && cost->ahead_size == shape->num_decodes && ahead >= 0 &&
            ahead % shape->num_decodes == 0 && ahead / shape->num_decodes < cost->num_ahead &&
            ahead / shape->num_decodes ==
                shape->decode_max_context_tokens - cost->ahead_max_context)
            return cost->ahead[ahead / shape->num_decodes];
        look_ahead(core, shape);
    }
}

double cost_step_s(Core *core, Shape *shape, bool is_group_alone) {
    const Cost *cost = &core->cost;
    if (shape->num_chunks && cost->are_chunks_in_python) return python_step_s(core, shape);
    switch (cost->kind) {
    case COST_CONSTANT: return cost->constant_s;
    case COST_LINEAR: return linear_s(cost, shape);
    case COST_ROOFLINE: return roofline_s(cost, shape);
    case COST_PROFILE: return profile_s(cost, shape);
    default: return is_group_alone ? python_decode_s(core, shape) : python_step_s(core, shape);
    }
}

/* Taking a form from Python. ----------------------------------------------------------------------------- */

static PyObject *entry(PyObject *form, const char *key) {
    PyObject *value = PyDict_GetItemString(form, key);
    if (!value) PyErr_Format(PyExc_KeyError, "a cost model's compiled form lacks %s", key);
    return value;
}

static int get_double(PyObject *form, const char *key, double *value) {
    PyObject *number = entry(form, key);
    if (!number) return -1;
    *value = PyFloat_AsDouble(number);
    return PyErr_Occurred() ? -1 : 0;
}

/* An array of doubles from a sequence; its length goes to *count. */
static double *doubles(PyObject *values, int64_t *count) {
    PyObject *fast = values ? PySequence_Fast(values, "a table of numbers is expected") : NULL;
    if (!fast) return NULL;
    *count = PySequence_Fast_GET_SIZE(fast);
    double *array = PyMem_Malloc((size_t)(*count ? *count : 1) * sizeof(double));
    if (!array) PyErr_NoMemory();
    for (int64_t i = 0; array && i < *count; i++) {
        array[i] = PyFloat_AsDouble(PySequence_Fast_GET_ITEM(fast, i));
        if (PyErr_Occurred()) {
            PyMem_Free(array);
            array = NULL;
        }
    }
    Py_DECREF(fast);
    return array;
}

static int get_gemm(PyObject *form, const char *key, double *a, double *b, double *c) {
    int64_t count = 0;
    double *values = doubles(entry(form, key), &count);
    if (!values) return -1;
    if (count == 3) {
        *a = values[0];
        *b = values[1];
        *c = values[2];
    } else {
        PyErr_Format(PyExc_ValueError, "%s must hold 3 numbers", key);
    }
    PyMem_Free(values);
    return count == 3 ? 0 : -1;
}

static int get_line(PyObject *pair, Line *line) {
    PyObject *x, *y;
    int64_t num_y;
    if (!pair || !PyArg_ParseTuple(pair, "OO", &x, &y)) return -1;
    if (!(line->x = doubles(x, &line->count)) || !(line->y = doubles(y, &num_y))) return -1;
    if (line->count < 2 || num_y != line->count) {
        PyErr_SetString(PyExc_ValueError, "a line needs at least two points");
        return -1;
    }
    line->slope = PyMem_Malloc((size_t)line->count * sizeof(double));
    if (!line->slope) {
        PyErr_NoMemory();
        return -1;
    }
    int64_t last = line->count - 1;
    for (int64_t i = 0; i < last; i++)
        line->slope[i] = (line->y[i + 1] - line->y[i]) / (line->x[i + 1] - line->x[i]);
    line->slope[last] = not_negative(line->slope[last - 1]);
    return 0;
}

/* (columns, [(rows, values down the column)]) */
static int get_grid(PyObject *pair, Grid *grid) {
    PyObject *columns, *lines;
    int64_t num_columns = 0;
    if (!pair || !PyArg_ParseTuple(pair, "OO", &columns, &lines)) return -1;
    if (!(grid->columns = doubles(columns, &num_columns))) return -1;
    PyObject *fast = PySequence_Fast(lines, "a grid's lines are a sequence");
    if (!fast) return -1;
    int result = -1;
    if (num_columns < 2 || PySequence_Fast_GET_SIZE(fast) != num_columns) {
        PyErr_SetString(PyExc_ValueError, "a grid needs a line for each of at least two columns");
    } else if (!(grid->down = PyMem_Calloc((size_t)num_columns, sizeof(Line)))) {
        PyErr_NoMemory();
    } else {
        grid->num_columns = num_columns;
        result = 0;
        for (int64_t i = 0; !result && i < num_columns; i++)
            result = get_line(PySequence_Fast_GET_ITEM(fast, i), &grid->down[i]);
    }
    Py_DECREF(fast);
    return result;
}

static int get_box(PyObject *pair, Box *box) {
    PyObject *layers, *grids;
    int64_t num_layers = 0;
    if (!PyArg_ParseTuple(pair, "OO", &layers, &grids)) return -1;
    if (!(box->layers = doubles(layers, &num_layers))) return -1;
    PyObject *fast = PySequence_Fast(grids, "a box's grids are a sequence");
    if (!fast) return -1;
    int result = -1;
    if (num_layers < 2 || PySequence_Fast_GET_SIZE(fast) != num_layers) {
        PyErr_SetString(PyExc_ValueError, "a box needs a grid for each of at least two layers");
    } else if (!(box->grids = PyMem_Calloc((size_t)num_layers, sizeof(Grid)))) {
        PyErr_NoMemory();
    } else {
        box->num_layers = num_layers;
        result = 0;
        for (int64_t i = 0; !result && i < num_layers; i++)
            result = get_grid(PySequence_Fast_GET_ITEM(fast, i), &box->grids[i]);
    }
    Py_DECREF(fast);
    return result;
}

static int get_roofline(Cost *cost, PyObject *form) {
    static const char *const names[] = {"qkv", "out", "up", "down"};
    for (int i = 0; i < 4; i++) {
        Gemm *gemm = &cost->gemms[i];
        if (get_gemm(form, names[i], &gemm->flops_s, &gemm->weights_s, &gemm->rows_s)) return -1;
    }
    if (get_gemm(form, "head", &cost->head.flops_s, &cost->head.weights_s, &cost->head.rows_s) ||
        get_gemm(form, "attention", &cost->pair_s, &cost->kv_s, &cost->attention_token_s))
        return -1;
    return get_double(form, "token_s", &cost->token_s) ||
                   get_double(form, "sampler_s", &cost->sampler_s) ||
                   get_double(form, "overhead_s", &cost->overhead_s)
               ? -1
               : 0;
}

static int get_shares(PyObject *form, const char *key, bool *is_there, Line *line) {
    PyObject *shares = entry(form, key);
    if (!shares) return -1;
    *is_there = shares != Py_None;
    return *is_there ? get_line(shares, line) : 0;
}

static int get_profile(Cost *cost, PyObject *form) {
    PyObject *beside;
    if (get_line(entry(form, "dense"), &cost->dense) ||
        get_line(entry(form, "logits"), &cost->logits) ||
        get_grid(entry(form, "prefill_attention"), &cost->prefill) ||
        get_grid(entry(form, "decode_attention"), &cost->decode) ||
        get_double(form, "launch_s", &cost->launch_s) ||
        get_double(form, "overhead_s", &cost->overhead_s) ||
        !(beside = entry(form, "decode_beside_chunks")))
        return -1;
    cost->has_beside = beside != Py_None;
    if (cost->has_beside && get_box(beside, &cost->beside)) return -1;
    return get_shares(form, "decode_skew", &cost->has_skew, &cost->skew) ||
                   get_shares(form, "decode_skew_beside_chunks", &cost->has_skew_beside,
                              &cost->skew_beside)
               ? -1
               : 0;
}

static int get_form(Cost *cost, PyObject *form) {
    PyObject *name = entry(form, "kind");
    const char *kind = name ? PyUnicode_AsUTF8(name) : NULL;
    if (!kind) return -1;
    if (!strcmp(kind, "constant")) {
        cost->kind = COST_CONSTANT;
        return get_double(form, "step_s", &cost->constant_s);
    }
    if (!strcmp(kind, "linear")) {
        cost->kind = COST_LINEAR;
        return get_double(form, "base_s", &cost->base_s) ||
                       get_double(form, "per_token_s", &cost->per_token_s) ||
                       get_double(form, "per_context_token_s", &cost->per_context_token_s) ||
                       get_double(form, "per_logit_s", &cost->per_logit_s)
                   ? -1
                   : 0;
    }
    if (!strcmp(kind, "roofline")) {
        cost->kind = COST_ROOFLINE;
        return get_roofline(cost, form);
    }
    if (!strcmp(kind, "profile")) {
        cost->kind = COST_PROFILE;
        return get_profile(cost, form);
    }
    cost->kind = COST_PYTHON; /* a form of a later day */
    return 0;
}

int cost_init(Cost *cost, PyObject *model, PyObject *form, PyObject *shape_type, int in_python) {
    cost->step_time_s = PyObject_GetAttrString(model, "step_time_s");
    cost->decode_times_s = PyObject_GetAttrString(model, "decode_times_s");
    cost->shape_type = Py_NewRef(shape_type);
    cost->ahead = PyMem_Malloc(MOST_STEPS_AHEAD * sizeof(double));
    if (!cost->ahead) PyErr_NoMemory();
    if (!cost->step_time_s || !cost->decode_times_s || !cost->ahead) return -1;
    cost->are_chunks_in_python = in_python;
    cost->kind = COST_PYTHON;
    return form == Py_None ? 0 : get_form(cost, form);
}

static void clear_line(Line *line) {
    PyMem_Free(line->x);
    PyMem_Free(line->y);
    PyMem_Free(line->slope);
}

static void clear_grid(Grid *grid) {
    for (int64_t i = 0; i < grid->num_columns; i++) clear_line(&grid->down[i]);
    PyMem_Free(grid->down);
    PyMem_Free(grid->columns);
}

void cost_clear(Cost *cost) {
    Py_CLEAR(cost->step_time_s);
    Py_CLEAR(cost->decode_times_s);
    Py_CLEAR(cost->shape_type);
    PyMem_Free(cost->ahead);
    clear_line(&cost->dense);
    clear_line(&cost->logits);
    clear_line(&cost->skew);
    clear_line(&cost->skew_beside);
    clear_grid(&cost->prefill);
    clear_grid(&cost->decode);
    for (int64_t i = 0; i < cost->beside.num_layers; i++) clear_grid(&cost->beside.grids[i]);
    PyMem_Free(cost->beside.grids);
    PyMem_Free(cost->beside.layers);
    memset(cost, 0, sizeof *cost);
}
