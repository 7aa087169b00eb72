/* What the programs share. */
#ifndef CHECK_H
#define CHECK_H
#include <nccl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FAIL(...)                                            \
    do {                                                     \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);      \
        fprintf(stderr, __VA_ARGS__);                        \
        fprintf(stderr, "\n");                               \
        exit(1);                                             \
    } while (0)

#define OK(call)                                                                          \
    do {                                                                                  \
        ncclResult_t ok_result = (call);                                                  \
        if (ok_result != ncclSuccess)                                                     \
            FAIL("%s: %d, %s", #call, ok_result, ncclGetLastError(NULL));                 \
    } while (0)

#define IS(call, wanted)                                                                  \
    do {                                                                                  \
        ncclResult_t is_result = (call);                                                  \
        if (is_result != (wanted))                                                        \
            FAIL("%s: %d instead of %d, %s", #call, is_result, wanted, ncclGetLastError(NULL)); \
    } while (0)

#define TRUE(what)                                           \
    do {                                                     \
        if (!(what)) FAIL("not true: %s", #what);            \
    } while (0)

static inline double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

/* Waits until a communicator is no longer in progress. */
static inline ncclResult_t settle(ncclComm_t comm, double limit) {
    double until = seconds() + limit;
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        OK(ncclCommGetAsyncError(comm, &state));
        if (seconds() > until) FAIL("still in progress after %g s", limit);
        usleep(100);
    }
    return state;
}

/* Runs `body(rank, nranks, id)` in a process for each rank; all must end with 0. */
static inline void processes(int nranks, void (*body)(int, int, ncclUniqueId)) {
    int to_all[2];
    if (pipe(to_all) != 0) FAIL("pipe");
    pid_t pids[64];
    for (int rank = 0; rank < nranks; rank++) {
        fflush(NULL);
        pids[rank] = fork();
        if (pids[rank] != 0) continue;
        ncclUniqueId id;
        if (rank == 0) {
            OK(ncclGetUniqueId(&id));
            for (int other = 1; other < nranks; other++) TRUE(write(to_all[1], &id, sizeof id) == sizeof id);
        } else {
            TRUE(read(to_all[0], &id, sizeof id) == sizeof id);
        }
        body(rank, nranks, id);
        exit(0);
    }
    int failed = 0;
    for (int rank = 0; rank < nranks; rank++) {
        int status = 0;
        waitpid(pids[rank], &status, 0);
        if (status != 0) {
            fprintf(stderr, "rank %d ended with %x\n", rank, status);
            failed = 1;
        }
    }
    if (failed) exit(1);
}
#endif
