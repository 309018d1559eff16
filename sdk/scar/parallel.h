/* Work on many rows, in parts on several processors at once. */

#ifndef SCAR_PARALLEL_H
#define SCAR_PARALLEL_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#define MOST_PARTS 8
#define LINE 64      /* bytes of memory that come at once */
#define MOST_LINES 8 /* of a row that are fetched ahead; of a longer one the processor guesses the rest */

/* A row that is needed soon. `written`: 1 if it is written to. */
#define FETCH_ROW(row, bytes, written)                                                                       \
    for (int64_t line = 0; line < (int64_t)(bytes) && line < MOST_LINES * LINE; line += LINE)                \
    __builtin_prefetch((const char *)(row) + line, written)

/* The loader takes the newest that the processor has: vectors of 16, 8 or 4 floats. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=skylake-avx512", "avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

/* On rows `first` to `last`. Parts never share a row. */
typedef void (*row_work)(const void *arguments, int64_t first, int64_t last);

typedef struct {
    row_work work;
    const void *arguments;
    int64_t first, last;
    pthread_t thread;
    int started;
} row_part;

static void *run_part(void *given) {
    row_part *part = given;
    part->work(part->arguments, part->first, part->last);
    return NULL;
}

/* All rows, in so many parts, each but the first on a thread of its own; returns when all is done. */
static void run_parts(row_work work, const void *arguments, int64_t rows, int64_t parts) {
    if (parts > MOST_PARTS)
        parts = MOST_PARTS;
    if (parts < 2) {
        work(arguments, 0, rows);
        return;
    }
    row_part all[MOST_PARTS];
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before); /* signals are for threads that know of them */
    for (int64_t i = parts - 1; i >= 0; i--) {
        all[i] = (row_part){work, arguments, rows * i / parts, rows * (i + 1) / parts, 0, 0};
        all[i].started = i && pthread_create(&all[i].thread, NULL, run_part, &all[i]) == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (int64_t i = 0; i < parts; i++)
        if (!all[i].started)
            run_part(&all[i]);
    for (int64_t i = 0; i < parts; i++)
        if (all[i].started)
            pthread_join(all[i].thread, NULL);
}

/* Whether one of these rows is below `least` or not below `limit`. */
static int is_outside(const int64_t *at, int64_t rows, int64_t least, int64_t limit) {
    int64_t signs = 0;
    for (int64_t i = 0; i < rows; i++)
        signs |= (at[i] - least) | (limit - 1 - at[i]);
    return signs < 0;
}

#endif
