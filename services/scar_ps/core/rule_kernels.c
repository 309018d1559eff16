/* Update rules in one pass over memory, for rule_kernels.py: each row is fetched once, where numpy makes a
   pass for each operation.

   The results are numpy's, bit for bit: every operation is rounded as IEEE 754 says, in the same order, and
   none are contracted (-ffp-contract=off). Where this file could not be compiled, numpy does the same more
   slowly.

   Values and slots are of `limit` rows, `pushed` of `rows`, each of `width` elements. `at`: which rows; NULL:
   the first ones, in order. -1: a row is beyond `limit`, and nothing was changed. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* rows that are fetched before they are needed: memory takes some 100 ns, a row of 64 floats some 50 */
#define AHEAD 8
#define LINE 64 /* bytes */
#define MOST_LINES 8 /* of a row that are fetched so; of a longer one the processor guesses the rest */

/* The loader takes the newest that the processor has: vectors of 16, 8 or 4 floats. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=skylake-avx512", "avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

int64_t scar_rule_kernels(void) { return 1; } /* VERSION of rule_kernels.py */

static int is_outside(const int64_t *at, int64_t rows, int64_t limit) {
    if (at == NULL)
        return rows > limit;
    int64_t signs = 0;
    for (int64_t i = 0; i < rows; i++)
        signs |= at[i] | (limit - 1 - at[i]);
    return signs < 0;
}

static inline void fetch(const void *row, size_t bytes) {
    for (size_t i = 0; i < bytes && i < MOST_LINES * LINE; i += LINE)
        __builtin_prefetch((const char *)row + i, 1);
}

#define SGD(NAME, REAL)                                                                                      \
    FOR_EACH_PROCESSOR int NAME(REAL *restrict values, const REAL *restrict pushed,                          \
                                const int64_t *restrict at, int64_t rows, int64_t width, int64_t limit,      \
                                REAL lr) {                                                                   \
        if (is_outside(at, rows, limit))                                                                     \
            return -1;                                                                                       \
        for (int64_t i = 0; i < rows; i++) {                                                                 \
            REAL *restrict value = values + (at ? at[i] : i) * width;                                        \
            const REAL *restrict gradient = pushed + i * width;                                              \
            if (at && i + AHEAD < rows)                                                                      \
                fetch(values + at[i + AHEAD] * width, width * sizeof(REAL));                                 \
            for (int64_t k = 0; k < width; k++)                                                              \
                value[k] -= gradient[k] * lr;                                                                \
        }                                                                                                    \
        return 0;                                                                                            \
    }

#define ADAGRAD(NAME, REAL, ROOT)                                                                            \
    FOR_EACH_PROCESSOR int NAME(REAL *restrict values, REAL *restrict squares, const REAL *restrict pushed,  \
                                const int64_t *restrict at, int64_t rows, int64_t width, int64_t limit,      \
                                REAL lr, REAL eps) {                                                         \
        if (is_outside(at, rows, limit))                                                                     \
            return -1;                                                                                       \
        for (int64_t i = 0; i < rows; i++) {                                                                 \
            int64_t first = (at ? at[i] : i) * width;                                                        \
            REAL *restrict value = values + first;                                                           \
            REAL *restrict square = squares + first;                                                         \
            const REAL *restrict gradient = pushed + i * width;                                              \
            if (at && i + AHEAD < rows) {                                                                    \
                fetch(values + at[i + AHEAD] * width, width * sizeof(REAL));                                 \
                fetch(squares + at[i + AHEAD] * width, width * sizeof(REAL));                                \
            }                                                                                                \
            for (int64_t k = 0; k < width; k++) {                                                            \
                square[k] += gradient[k] * gradient[k];                                                      \
                value[k] -= gradient[k] * lr / (ROOT(square[k]) + eps);                                      \
            }                                                                                                \
        }                                                                                                    \
        return 0;                                                                                            \
    }

/* One sum for each row. `means`, of the squares of what was pushed, are numpy's, which adds in an order of
   its own. */
#define ADAGRAD_BY_ROW(NAME, REAL, ROOT)                                                                     \
    FOR_EACH_PROCESSOR int NAME(REAL *restrict values, REAL *restrict sums, const REAL *restrict pushed,     \
                                const REAL *restrict means, const int64_t *restrict at, int64_t rows,        \
                                int64_t width, int64_t limit, REAL lr, REAL eps) {                           \
        if (is_outside(at, rows, limit))                                                                     \
            return -1;                                                                                       \
        for (int64_t i = 0; i < rows; i++) {                                                                 \
            int64_t row = at ? at[i] : i;                                                                    \
            REAL *restrict value = values + row * width;                                                     \
            const REAL *restrict gradient = pushed + i * width;                                              \
            if (at && i + AHEAD < rows) {                                                                    \
                fetch(values + at[i + AHEAD] * width, width * sizeof(REAL));                                 \
                fetch(sums + at[i + AHEAD], sizeof(REAL));                                                   \
            }                                                                                                \
            sums[row] += means[i];                                                                           \
            REAL scale = ROOT(sums[row]) + eps;                                                              \
            for (int64_t k = 0; k < width; k++)                                                              \
                value[k] -= gradient[k] * lr / scale;                                                        \
        }                                                                                                    \
        return 0;                                                                                            \
    }

SGD(scar_sgd_float32, float)
SGD(scar_sgd_float64, double)
ADAGRAD(scar_adagrad_float32, float, sqrtf)
ADAGRAD(scar_adagrad_float64, double, sqrt)
ADAGRAD_BY_ROW(scar_adagrad_by_row_float32, float, sqrtf)
ADAGRAD_BY_ROW(scar_adagrad_by_row_float64, double, sqrt)
