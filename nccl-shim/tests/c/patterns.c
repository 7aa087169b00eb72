/* Patterns that simulated libraries have failed on. */
#include "check.h"

static void pair(int rank, int nranks, ncclUniqueId id) {
    ncclComm_t comm;
    OK(ncclCommInitRank(&comm, nranks, id, rank));
    int32_t value = 41 + rank;
    /* The other two ranks have nothing to do with it. */
    if (rank == 1) OK(ncclSend(&value, 1, ncclInt32, 3, comm, NULL));
    if (rank == 3) OK(ncclRecv(&value, 1, ncclInt32, 1, comm, NULL));
    if (rank == 3) TRUE(value == 42);
    OK(ncclCommDestroy(comm));
}

static void ring(int rank, int nranks, ncclUniqueId id) {
    ncclComm_t comm;
    OK(ncclCommInitRank(&comm, nranks, id, rank));
    enum { COUNT = 1 << 18 };
    int32_t *send = malloc(COUNT * 4), *recv = malloc(COUNT * 4);
    for (int round = 0; round < 10; round++) {
        int distance = 1 + round % (nranks - 1);
        int to = (rank + distance) % nranks, from = (rank + nranks - distance) % nranks;
        for (int i = 0; i < COUNT; i++) send[i] = rank * round + i;
        OK(ncclGroupStart());
        OK(ncclSend(send, COUNT, ncclInt32, to, comm, NULL));
        OK(ncclRecv(recv, COUNT, ncclInt32, from, comm, NULL));
        OK(ncclGroupEnd());
        for (int i = 0; i < COUNT; i++) TRUE(recv[i] == from * round + i);
    }
    int partner = rank ^ 1;
    OK(ncclGroupStart());
    OK(ncclRecv(recv, COUNT, ncclInt32, partner, comm, NULL));
    OK(ncclSend(send, COUNT, ncclInt32, partner, comm, NULL));
    OK(ncclGroupEnd());
    TRUE(recv[1] == partner * 9 + 1);
    OK(ncclCommDestroy(comm));
}

static void gather(int rank, int nranks, ncclUniqueId id) {
    ncclComm_t comm;
    OK(ncclCommInitRank(&comm, nranks, id, rank));
    int32_t mine = rank + 5, all[8];
    OK(ncclGroupStart());
    if (rank == 2)
        for (int peer = 0; peer < nranks; peer++) OK(ncclRecv(&all[peer], 1, ncclInt32, peer, comm, NULL));
    OK(ncclGroupStart());
    OK(ncclSend(&mine, 1, ncclInt32, 2, comm, NULL));
    OK(ncclGroupEnd());
    OK(ncclGroupEnd());
    if (rank == 2)
        for (int peer = 0; peer < nranks; peer++) TRUE(all[peer] == peer + 5);
    OK(ncclCommDestroy(comm));
}

static void two(int rank, int nranks, ncclUniqueId id) {
    ncclComm_t world, part;
    OK(ncclCommInitRank(&world, nranks, id, rank));
    OK(ncclCommSplit(world, rank % 2, rank, &part, NULL));
    int32_t mine = rank, all = 0, half = 0;
    for (int round = 0; round < 100; round++) {
        OK(ncclGroupStart());
        /* Ranks need not agree on the order of communicators. */
        if (rank < 2) OK(ncclAllReduce(&mine, &all, 1, ncclInt32, ncclSum, world, NULL));
        OK(ncclAllReduce(&mine, &half, 1, ncclInt32, ncclSum, part, NULL));
        if (rank >= 2) OK(ncclAllReduce(&mine, &all, 1, ncclInt32, ncclSum, world, NULL));
        OK(ncclGroupEnd());
        TRUE(all == 6 && half == (rank % 2 == 0 ? 2 : 4));
    }
    OK(ncclCommDestroy(part));
    OK(ncclCommDestroy(world));
}

static void init_in_group(void) {
    enum { N = 4 };
    ncclUniqueId id;
    ncclComm_t comms[N];
    OK(ncclGetUniqueId(&id));
    OK(ncclGroupStart());
    for (int r = 0; r < N; r++) OK(ncclCommInitRank(&comms[r], N, id, r));
    OK(ncclGroupEnd());
    int32_t mine[N] = {1, 2, 3, 4}, sum[N];
    OK(ncclGroupStart());
    for (int r = 0; r < N; r++) OK(ncclAllReduce(&mine[r], &sum[r], 1, ncclInt32, ncclSum, comms[r], NULL));
    OK(ncclGroupEnd());
    for (int r = 0; r < N; r++) TRUE(sum[r] == 10);
    /* A wrong call spoils the group, which does nothing and leaves the thread as it was. */
    OK(ncclGroupStart());
    sum[0] = -1;
    OK(ncclAllReduce(&mine[0], &sum[0], 1, ncclInt32, ncclSum, comms[0], NULL));
    IS(ncclAllReduce(&mine[1], &sum[1], 1, (ncclDataType_t)99, ncclSum, comms[1], NULL), ncclInvalidArgument);
    IS(ncclGroupEnd(), ncclInvalidArgument);
    IS(ncclGroupEnd(), ncclInvalidUsage);
    TRUE(sum[0] == -1);
    OK(ncclGroupStart());
    for (int r = 0; r < N; r++) OK(ncclAllReduce(&mine[r], &sum[r], 1, ncclInt32, ncclSum, comms[r], NULL));
    OK(ncclGroupEnd());
    TRUE(sum[0] == 10);
    for (int r = 0; r < N; r++) OK(ncclCommDestroy(comms[r]));
}

static void many(int rank, int nranks, ncclUniqueId id) {
    ncclComm_t comm;
    OK(ncclCommInitRank(&comm, nranks, id, rank));
    enum { MANY = 10000 };
    static int32_t mine[MANY], sum[MANY];
    for (int i = 0; i < MANY; i++) mine[i] = rank + i;
    OK(ncclGroupStart());
    for (int i = 0; i < MANY; i++) OK(ncclAllReduce(&mine[i], &sum[i], 1, ncclInt32, ncclSum, comm, NULL));
    OK(ncclGroupEnd());
    for (int i = 0; i < MANY; i++) TRUE(sum[i] == nranks * (nranks - 1) / 2 + nranks * i);
    OK(ncclCommDestroy(comm));
}

static void late(int rank, int nranks, ncclUniqueId id) {
    ncclComm_t comm;
    OK(ncclCommInitRank(&comm, nranks, id, rank));
    if (rank == 1) sleep(5);
    int32_t mine = 1, sum = 0;
    OK(ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, comm, NULL));
    TRUE(sum == nranks);
    OK(ncclCommDestroy(comm));
}

static ncclComm_t shared;

static void *abort_soon(void *unused) {
    usleep(300000);
    OK(ncclCommAbort(shared));
    return unused;
}

static void aborts(int rank, int nranks, ncclUniqueId id) {
    ncclComm_t comm;
    OK(ncclCommInitRank(&comm, nranks, id, rank));
    if (rank == 2) {
        usleep(500000);
        OK(ncclCommAbort(comm));
        return;
    }
    shared = comm;
    pthread_t thread;
    if (rank == 0) pthread_create(&thread, NULL, abort_soon, NULL);
    int32_t value = 1, sum;
    double begin = seconds();
    ncclResult_t result = ncclAllReduce(&value, &sum, 1, ncclInt32, ncclSum, comm, NULL);
    TRUE(result == ncclRemoteError);
    TRUE(seconds() - begin < 5);
    if (rank == 0)
        pthread_join(thread, NULL);
    else
        OK(ncclCommAbort(comm));
}

static void million(int rank, int nranks, ncclUniqueId id) {
    ncclComm_t comm;
    OK(ncclCommInitRank(&comm, nranks, id, rank));
    int64_t sum;
    for (int64_t i = 0; i < 1000000; i++) {
        int64_t mine = rank + i;
        OK(ncclAllReduce(&mine, &sum, 1, ncclInt64, ncclSum, comm, NULL));
        TRUE(sum == nranks * (nranks - 1) / 2 + nranks * i);
    }
    OK(ncclCommDestroy(comm));
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "pair")) processes(4, pair);
    else if (!strcmp(what, "ring")) processes(4, ring);
    else if (!strcmp(what, "gather")) processes(4, gather);
    else if (!strcmp(what, "two")) processes(4, two);
    else if (!strcmp(what, "init")) init_in_group();
    else if (!strcmp(what, "many")) processes(2, many);
    else if (!strcmp(what, "late")) processes(3, late);
    else if (!strcmp(what, "abort")) processes(3, aborts);
    else if (!strcmp(what, "million")) processes(2, million);
    else FAIL("no pattern %s", what);
    puts("done");
    return 0;
}
