/* Copies of many rows, for row_copies.py: each row is fetched before it is needed, and large copies run on
   several processors.

   Rows are of `bytes` bytes each. -1: a row is beyond `limit`, and nothing was written. */

#include <string.h>

#include "parallel.h"

#define AHEAD 16 /* rows that are fetched before they are needed */

typedef struct {
    char *to;
    const char *from;
    const int64_t *at;
    int64_t bytes;
} copy_step;

int64_t scar_row_copies(void) { return 1; } /* VERSION of row_copies.py */

static void gather_part(const void *given, int64_t first, int64_t last) {
    const copy_step step = *(const copy_step *)given;
    for (int64_t i = first; i < last; i++) {
        if (i + AHEAD < last && step.at[i + AHEAD] >= 0)
            FETCH_ROW(step.from + step.at[i + AHEAD] * step.bytes, step.bytes, 0);
        if (step.at[i] >= 0)
            memcpy(step.to + i * step.bytes, step.from + step.at[i] * step.bytes, step.bytes);
    }
}

static void scatter_part(const void *given, int64_t first, int64_t last) {
    const copy_step step = *(const copy_step *)given;
    for (int64_t i = first; i < last; i++) {
        if (i + AHEAD < last)
            FETCH_ROW(step.to + step.at[i + AHEAD] * step.bytes, step.bytes, 1);
        memcpy(step.to + step.at[i] * step.bytes, step.from + i * step.bytes, step.bytes);
    }
}

/* Row i of `to` becomes row at[i] of `from`. `least` -1: with -1 it stays as it is; else 0. */
int scar_gather(char *to, const char *from, const int64_t *at, int64_t rows, int64_t bytes, int64_t least,
                int64_t limit, int64_t parts) {
    if (is_outside(at, rows, least, limit))
        return -1;
    copy_step step = {to, from, at, bytes};
    run_parts(gather_part, &step, rows, parts);
    return 0;
}

/* Row at[i] of `to` is row i of `from`; no two are the same. */
int scar_scatter(char *to, const char *from, const int64_t *at, int64_t rows, int64_t bytes, int64_t limit,
                 int64_t parts) {
    if (is_outside(at, rows, 0, limit))
        return -1;
    copy_step step = {to, from, at, bytes};
    run_parts(scatter_part, &step, rows, parts);
    return 0;
}

static void copy_part(const void *given, int64_t first, int64_t last) {
    const copy_step *step = given;
    memcpy(step->to + first, step->from + first, last - first);
}

void scar_copy(char *to, const char *from, int64_t bytes, int64_t parts) {
    copy_step step = {to, from, NULL, 1};
    run_parts(copy_part, &step, bytes, parts);
}

typedef struct {
    const void *values;
    int *found;
} finite_step;

/* A float is NaN or infinite when all bits of its exponent are set. */
#define FINITE(NAME, BITS, EXPONENT)                                                                         \
    FOR_EACH_PROCESSOR void NAME##_part(const void *given, int64_t first, int64_t last) {                    \
        const finite_step *step = given;                                                                     \
        const BITS *bits = step->values;                                                                     \
        while (first < last) {                                                                               \
            int64_t stop = first + 4096 < last ? first + 4096 : last;                                        \
            BITS most = 0;                                                                                   \
            for (; first < stop; first++) {                                                                  \
                BITS exponent = bits[first] & EXPONENT;                                                      \
                most = exponent > most ? exponent : most;                                                    \
            }                                                                                                \
            if (most == EXPONENT) {                                                                          \
                __atomic_store_n(step->found, 1, __ATOMIC_RELAXED);                                          \
                return;                                                                                      \
            }                                                                                                \
        }                                                                                                    \
    }                                                                                                        \
    int NAME(const void *values, int64_t count, int64_t parts) {                                             \
        int found = 0;                                                                                       \
        finite_step step = {values, &found};                                                                 \
        run_parts(NAME##_part, &step, count, parts);                                                         \
        return !found;                                                                                       \
    }

FINITE(scar_all_finite_float32, uint32_t, UINT32_C(0x7f800000))
FINITE(scar_all_finite_float64, uint64_t, UINT64_C(0x7ff0000000000000))
