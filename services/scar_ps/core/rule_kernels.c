/* Update rules in one pass over memory, for rule_kernels.py: each row is fetched once, where numpy makes a
   pass for each operation, and many rows on several processors.

   The results are numpy's, bit for bit: every operation is rounded as IEEE 754 says, in the same order, and
   none are contracted (-ffp-contract=off). Where this file could not be compiled, numpy does the same more
   slowly.

   Values and slots are of `limit` rows, each of `width` elements. `at`: which rows, none twice; NULL: the
   first ones, in order. `pushed` are pieces of `piece` rows each, the last of fewer: the first row's elements
   begin behind `skipped` rows of the first piece. -1: a row is beyond `limit`, and nothing was changed. */

#include <math.h>

#include "parallel.h"

/* rows that are fetched before they are needed: memory takes some 100 ns, a row of 64 floats some 50 */
#define AHEAD 8

int64_t scar_rule_kernels(void) { return 3; } /* VERSION of rule_kernels.py */

/* `slot`: sums of squares, of elements or of rows. `means`, of the squares of what was pushed to each row,
   are numpy's, which adds in an order of its own. */
#define STEP(REAL)                                                                                           \
    typedef struct {                                                                                         \
        REAL *values, *slot;                                                                                 \
        const REAL *means;                                                                                   \
        const int64_t *at;                                                                                   \
        const REAL *const *pushed;                                                                           \
        int64_t width, piece, skipped;                                                                       \
        REAL lr, eps;                                                                                        \
    } step_##REAL;

/* `BODY`, with `s`, the step, and of row `i`: `row`, its place, `value` and `gradient`, its elements.
   `FETCH`: what it needs of row `next` beside its values. */
#define RULE(NAME, REAL, FETCH, BODY)                                                                        \
    FOR_EACH_PROCESSOR void NAME##_part(const void *given, int64_t first, int64_t last) {                    \
        const step_##REAL s = *(const step_##REAL *)given;                                                   \
        const int64_t width = s.width;                                                                       \
        for (int64_t i = first; i < last; i++) {                                                             \
            const int64_t row = s.at ? s.at[i] : i;                                                          \
            REAL *restrict value = s.values + row * width;                                                   \
            const int64_t from = i + s.skipped;                                                              \
            const REAL *restrict gradient = s.pushed[from / s.piece] + from % s.piece * width;               \
            if (s.at && i + AHEAD < last) {                                                                  \
                const int64_t next = s.at[i + AHEAD];                                                        \
                FETCH_ROW(s.values + next * width, width * sizeof(REAL), 1);                                 \
                FETCH;                                                                                       \
            }                                                                                                \
            BODY                                                                                             \
        }                                                                                                    \
    }                                                                                                        \
    int NAME(REAL *values, REAL *slot, const REAL *means, const int64_t *at, const REAL *const *pushed,      \
             int64_t rows, int64_t width, int64_t limit, int64_t parts, int64_t piece, int64_t skipped,      \
             REAL lr, REAL eps) {                                                                            \
        if (at ? is_outside(at, rows, 0, limit) : rows > limit)                                              \
            return -1;                                                                                       \
        step_##REAL step = {values, slot, means, at, pushed, width, piece, skipped, lr, eps};                \
        run_parts(NAME##_part, &step, rows, parts);                                                          \
        return 0;                                                                                            \
    }

#define SGD(NAME, REAL)                                                                                      \
    RULE(NAME, REAL, (void)next, {                                                                           \
        for (int64_t k = 0; k < width; k++)                                                                  \
            value[k] -= gradient[k] * s.lr;                                                                  \
    })

#define ADAGRAD(NAME, REAL, ROOT)                                                                            \
    RULE(NAME, REAL, FETCH_ROW(s.slot + next * width, width * sizeof(REAL), 1), {                            \
        REAL *restrict square = s.slot + row * width;                                                        \
        for (int64_t k = 0; k < width; k++) {                                                                \
            square[k] += gradient[k] * gradient[k];                                                          \
            value[k] -= gradient[k] * s.lr / (ROOT(square[k]) + s.eps);                                      \
        }                                                                                                    \
    })

/* One sum for each row. */
#define ADAGRAD_BY_ROW(NAME, REAL, ROOT)                                                                     \
    RULE(NAME, REAL, FETCH_ROW(s.slot + next, sizeof(REAL), 1), {                                            \
        s.slot[row] += s.means[i];                                                                           \
        const REAL scale = ROOT(s.slot[row]) + s.eps;                                                        \
        for (int64_t k = 0; k < width; k++)                                                                  \
            value[k] -= gradient[k] * s.lr / scale;                                                          \
    })

STEP(float)
STEP(double)
SGD(scar_sgd_float32, float)
SGD(scar_sgd_float64, double)
ADAGRAD(scar_adagrad_float32, float, sqrtf)
ADAGRAD(scar_adagrad_float64, double, sqrt)
ADAGRAD_BY_ROW(scar_adagrad_by_row_float32, float, sqrtf)
ADAGRAD_BY_ROW(scar_adagrad_by_row_float64, double, sqrt)
