/* Work on many rows, in parts on several processors at once. */

#ifndef SCAR_PARALLEL_H
#define SCAR_PARALLEL_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define MOST_PARTS 8
#define CHUNKS 4     /* of the rows, for each thread */
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

/* Chunks of rows, which go to whoever comes next: a thread that the system lets wait for a processor holds
   nobody up, and finds nothing left to do once it has one. */
typedef struct {
    row_work work;
    const void *arguments; /* valid while chunks are left */
    int64_t rows, chunks;
    int64_t next, left; /* chunk to be begun; how many are not done */
    int64_t users;      /* threads that know of this: the last one frees it */
    pthread_mutex_t lock;
    pthread_cond_t done;
} shared_work;

static void do_chunks(shared_work *shared) {
    int64_t chunk;
    while ((chunk = __atomic_fetch_add(&shared->next, 1, __ATOMIC_RELAXED)) < shared->chunks) {
        int64_t first = shared->rows * chunk / shared->chunks;
        shared->work(shared->arguments, first, shared->rows * (chunk + 1) / shared->chunks);
        if (__atomic_sub_fetch(&shared->left, 1, __ATOMIC_ACQ_REL) == 0) {
            pthread_mutex_lock(&shared->lock);
            pthread_cond_signal(&shared->done);
            pthread_mutex_unlock(&shared->lock);
        }
    }
}

static void leave_work(shared_work *shared) {
    if (__atomic_sub_fetch(&shared->users, 1, __ATOMIC_ACQ_REL))
        return;
    pthread_mutex_destroy(&shared->lock);
    pthread_cond_destroy(&shared->done);
    free(shared);
}

static void *help_with(void *given) {
    do_chunks(given);
    leave_work(given);
    return NULL;
}

/* Some systems start a thread where its maker runs, though other processors are idle: it has to be told to
   begin elsewhere. */
static void start_elsewhere(pthread_attr_t *how) {
#ifdef __linux__
    cpu_set_t others;
    int here = sched_getcpu();
    if (here < 0 || here >= CPU_SETSIZE || sched_getaffinity(0, sizeof others, &others))
        return;
    CPU_CLR(here, &others);
    if (CPU_COUNT(&others))
        pthread_attr_setaffinity_np(how, sizeof others, &others);
#else
    (void)how;
#endif
}

static void start_helpers(shared_work *shared, int64_t count) {
    pthread_attr_t how;
    pthread_t helper;
    sigset_t every, before;
    pthread_attr_init(&how);
    pthread_attr_setdetachstate(&how, PTHREAD_CREATE_DETACHED);
    start_elsewhere(&how);
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before); /* signals are for threads that know of them */
    for (int64_t i = 0; i < count; i++) {
        __atomic_add_fetch(&shared->users, 1, __ATOMIC_RELAXED);
        if (pthread_create(&helper, &how, help_with, shared))
            __atomic_sub_fetch(&shared->users, 1, __ATOMIC_RELAXED);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&how);
}

/* All rows, by so many threads, this one among them; returns when all is done. */
static void run_parts(row_work work, const void *arguments, int64_t rows, int64_t parts) {
    if (parts > MOST_PARTS)
        parts = MOST_PARTS;
    shared_work *shared = parts < 2 ? NULL : malloc(sizeof *shared);
    if (!shared) {
        work(arguments, 0, rows);
        return;
    }
    int64_t chunks = parts * CHUNKS;
    *shared = (shared_work){.work = work, .arguments = arguments, .rows = rows, .chunks = chunks};
    shared->left = chunks;
    shared->users = 1;
    pthread_mutex_init(&shared->lock, NULL);
    pthread_cond_init(&shared->done, NULL);
    start_helpers(shared, parts - 1);
    do_chunks(shared);
    pthread_mutex_lock(&shared->lock);
    while (__atomic_load_n(&shared->left, __ATOMIC_ACQUIRE))
        pthread_cond_wait(&shared->done, &shared->lock);
    pthread_mutex_unlock(&shared->lock);
    leave_work(shared);
}

/* Whether one of these rows is below `least` or not below `limit`. */
static int is_outside(const int64_t *at, int64_t rows, int64_t least, int64_t limit) {
    int64_t signs = 0;
    for (int64_t i = 0; i < rows; i++)
        signs |= (at[i] - least) | (limit - 1 - at[i]);
    return signs < 0;
}

#endif
