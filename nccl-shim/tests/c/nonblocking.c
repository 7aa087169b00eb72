/* Communicators that do not block. */
#include "check.h"

static void works(int rank, int nranks, ncclUniqueId id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = NULL;
    if (rank == 1) usleep(200000);
    IS(ncclCommInitRankConfig(&comm, nranks, id, rank, &config), ncclInProgress);
    TRUE(comm != NULL);
    float one = (float)rank, sum = -1;
    if (rank == 0) {
        int count;
        IS(ncclCommCount(comm, &count), ncclInvalidArgument);
        IS(ncclAllReduce(&one, &sum, 1, ncclFloat, ncclSum, comm, NULL), ncclInvalidArgument);
        TRUE(strstr(ncclGetLastError(comm), "previous operation") != NULL);
    }
    TRUE(settle(comm, 20) == ncclSuccess);
    for (int round = 0; round < 20; round++) {
        ncclResult_t result = ncclAllReduce(&one, &sum, 1, ncclFloat, ncclSum, comm, NULL);
        TRUE(result == ncclSuccess || result == ncclInProgress);
        TRUE(settle(comm, 20) == ncclSuccess);
        TRUE(sum == nranks * (nranks - 1) / 2);
    }
    ncclComm_t half = NULL;
    IS(ncclCommSplit(comm, rank % 2, 0, &half, NULL), ncclInProgress);
    TRUE(settle(comm, 20) == ncclSuccess);
    TRUE(half != NULL);
    TRUE(settle(half, 20) == ncclSuccess);
    OK(ncclGroupStart());
    OK(ncclAllReduce(&one, &sum, 1, ncclFloat, ncclSum, half, NULL));
    ncclResult_t result = ncclGroupEnd();
    TRUE(result == ncclSuccess || result == ncclInProgress);
    TRUE(settle(half, 20) == ncclSuccess);
    TRUE(sum == (rank % 2 == 0 ? 2 : 4));
    OK(ncclCommDestroy(half));
    result = ncclCommFinalize(comm);
    TRUE(result == ncclSuccess || result == ncclInProgress);
    TRUE(settle(comm, 20) == ncclSuccess);
    OK(ncclCommDestroy(comm));
}

/* Rank 1 never comes; the others give up by themselves. */
static void aborted(int rank, int nranks, ncclUniqueId id) {
    if (rank == 1) return;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = NULL;
    IS(ncclCommInitRankConfig(&comm, nranks, id, rank, &config), ncclInProgress);
    double until = seconds() + 0.5;
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress && seconds() < until) {
        OK(ncclCommGetAsyncError(comm, &state));
        usleep(1000);
    }
    double begin = seconds();
    OK(ncclCommAbort(comm));
    TRUE(seconds() - begin < 2);
    IS(ncclCommAbort(comm), ncclInvalidArgument);
}

/* An operation that nobody else calls does not keep its caller from giving up. */
static void stuck(int rank, int nranks, ncclUniqueId id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = NULL;
    IS(ncclCommInitRankConfig(&comm, nranks, id, rank, &config), ncclInProgress);
    TRUE(settle(comm, 20) == ncclSuccess);
    float one = 1, sum = 0;
    if (rank == 0) {
        ncclResult_t result = ncclAllReduce(&one, &sum, 1, ncclFloat, ncclSum, comm, NULL);
        TRUE(result == ncclInProgress || result == ncclSuccess);
        ncclResult_t state = ncclInProgress;
        for (int i = 0; i < 100 && state == ncclInProgress; i++) {
            OK(ncclCommGetAsyncError(comm, &state));
            usleep(1000);
        }
        TRUE(state == ncclInProgress);
        OK(ncclCommAbort(comm));
        return;
    }
    double until = seconds() + 10;
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess && seconds() < until) {
        OK(ncclCommGetAsyncError(comm, &state));
        usleep(1000);
    }
    TRUE(state == ncclRemoteError);
    TRUE(strstr(ncclGetLastError(NULL), "rank 0") != NULL);
    OK(ncclCommAbort(comm));
}

/* A rank that dies is noticed by who only asks. */
static void dies(int rank, int nranks, ncclUniqueId id) {
    ncclComm_t comm;
    OK(ncclCommInitRank(&comm, nranks, id, rank));
    if (rank == 1) _exit(0);
    /* One that leaves as it should is no error. */
    if (rank == 2) {
        OK(ncclCommDestroy(comm));
        return;
    }
    double until = seconds() + 5;
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess && seconds() < until) {
        OK(ncclCommGetAsyncError(comm, &state));
        usleep(1000);
    }
    TRUE(state == ncclRemoteError);
    TRUE(strstr(ncclGetLastError(NULL), "rank 1") != NULL);
    OK(ncclCommAbort(comm));
}

int main(void) {
    processes(4, works);
    processes(3, aborted);
    processes(2, stuck);
    processes(3, dies);
    puts("done");
    return 0;
}
