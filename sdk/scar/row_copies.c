/* Copies of many rows, for row_copies.py: each row is fetched before it is needed, and large copies run on
   several processors.

   Rows are of `bytes` bytes each. -1: a row is beyond `limit`, and nothing was written. `kind`: 4 or 8 where
   what is copied are floats of so many bytes, and it is wanted whether all are finite (1: one is not). */

#include <string.h>

#include "parallel.h"

#define AHEAD 16       /* rows that are fetched before they are needed */
#define LOOKED_AT 2048 /* elements that are copied before they are looked at, while they are in the cache */

/* A float is NaN or infinite when all bits of its exponent are set. */
#define LOOK(NAME, BITS, EXPONENT)                                                                           \
    static inline __attribute__((always_inline)) int NAME(const void *values, int64_t count) {               \
        const BITS *bits = values;                                                                           \
        BITS most = 0;                                                                                       \
        for (int64_t i = 0; i < count; i++) {                                                                \
            BITS exponent = bits[i] & EXPONENT;                                                              \
            most = exponent > most ? exponent : most;                                                        \
        }                                                                                                    \
        return most == EXPONENT;                                                                             \
    }

LOOK(is_odd4, uint32_t, UINT32_C(0x7f800000))
LOOK(is_odd8, uint64_t, UINT64_C(0x7ff0000000000000))

/* Whether one of the floats in these bytes is not finite. */
static inline __attribute__((always_inline)) int is_odd(const void *values, int64_t bytes, int64_t kind) {
    return kind == 4 ? is_odd4(values, bytes / 4) : is_odd8(values, bytes / 8);
}

typedef struct {
    char *to;
    const char *from;
    const int64_t *at;
    int64_t bytes, kind;
    int *found;
} copy_step;

int64_t scar_row_copies(void) { return 2; } /* VERSION of row_copies.py */

static void gather_part(const void *given, int64_t first, int64_t last) {
    const copy_step step = *(const copy_step *)given;
    for (int64_t i = first; i < last; i++) {
        if (i + AHEAD < last && step.at[i + AHEAD] >= 0)
            FETCH_ROW(step.from + step.at[i + AHEAD] * step.bytes, step.bytes, 0);
        if (step.at[i] >= 0)
            memcpy(step.to + i * step.bytes, step.from + step.at[i] * step.bytes, step.bytes);
    }
}

FOR_EACH_PROCESSOR void scar_gather_look_part(const void *given, int64_t first, int64_t last) {
    const copy_step step = *(const copy_step *)given;
    int odd = 0;
    for (int64_t i = first; i < last; i++) {
        char *row = step.to + i * step.bytes;
        if (i + AHEAD < last)
            FETCH_ROW(step.from + step.at[i + AHEAD] * step.bytes, step.bytes, 0);
        memcpy(row, step.from + step.at[i] * step.bytes, step.bytes);
        odd |= is_odd(row, step.bytes, step.kind); /* at the copy, which nobody else changes */
    }
    if (odd)
        __atomic_store_n(step.found, 1, __ATOMIC_RELAXED);
}

static void scatter_part(const void *given, int64_t first, int64_t last) {
    const copy_step step = *(const copy_step *)given;
    for (int64_t i = first; i < last; i++) {
        if (i + AHEAD < last)
            FETCH_ROW(step.to + step.at[i + AHEAD] * step.bytes, step.bytes, 1);
        memcpy(step.to + step.at[i] * step.bytes, step.from + i * step.bytes, step.bytes);
    }
}

/* Row i of `to` becomes row at[i] of `from`. `least` -1: with -1 it stays as it is, without a look; else 0. */
int scar_gather(char *to, const char *from, const int64_t *at, int64_t rows, int64_t bytes, int64_t kind,
                int64_t least, int64_t limit, int64_t parts) {
    int found = 0;
    if (is_outside(at, rows, least, limit))
        return -1;
    copy_step step = {to, from, at, bytes, kind, &found};
    run_parts(kind ? scar_gather_look_part : gather_part, &step, rows, parts);
    return found;
}

/* Row at[i] of `to` is row i of `from`; no two are the same. */
int scar_scatter(char *to, const char *from, const int64_t *at, int64_t rows, int64_t bytes, int64_t limit,
                 int64_t parts) {
    if (is_outside(at, rows, 0, limit))
        return -1;
    copy_step step = {to, from, at, bytes, 0, NULL};
    run_parts(scatter_part, &step, rows, parts);
    return 0;
}

static void copy_part(const void *given, int64_t first, int64_t last) {
    const copy_step *step = given;
    memcpy(step->to + first * step->bytes, step->from + first * step->bytes, (last - first) * step->bytes);
}

/* `to` NULL: nothing is copied. */
FOR_EACH_PROCESSOR void scar_copy_look_part(const void *given, int64_t first, int64_t last) {
    const copy_step step = *(const copy_step *)given;
    while (first < last) {
        int64_t stop = first + LOOKED_AT < last ? first + LOOKED_AT : last;
        int64_t bytes = (stop - first) * step.bytes;
        const char *copied = step.from + first * step.bytes;
        if (step.to)
            copied = memcpy(step.to + first * step.bytes, copied, bytes);
        if (is_odd(copied, bytes, step.kind)) {
            __atomic_store_n(step.found, 1, __ATOMIC_RELAXED);
            return;
        }
        first = stop;
    }
}

/* Of `count` elements of `bytes` bytes each. Where one is not finite, not all are copied. */
int scar_copy(char *to, const char *from, int64_t count, int64_t bytes, int64_t kind, int64_t parts) {
    int found = 0;
    copy_step step = {to, from, NULL, bytes, kind, &found};
    run_parts(kind ? scar_copy_look_part : copy_part, &step, count, parts);
    return found;
}
