/* Random calls with random handles, counts, types and order, for some seconds: `fuzz SEED SECONDS`. */
#include "check.h"

enum { COMMS = 12, BYTES = 1 << 20, RANKS_MAX = 4 };

static uint64_t state;
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void **out);

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545f4914f6cdd1dULL;
}

static uint64_t below(uint64_t limit) { return next() % limit; }

static ncclComm_t comms[COMMS];
static char *memory;
static void *shared[4];
static ncclWindow_t windows[4];
static ncclRedOp_t ops[4];

static ncclComm_t some_comm(void) {
    switch (below(20)) {
    case 0: return NULL;
    case 1: return (ncclComm_t)next();
    case 2: return (ncclComm_t)memory;
    default: return comms[below(COMMS)];
    }
}

static size_t some_count(void) {
    static const size_t counts[] = {0, 1, 3, 16, 100, 1000, 4000, 8191};
    return counts[below(8)];
}

/* 65536 bytes are more than four ranks' blocks of the largest count need, but for 8-byte types: they stay in BYTES. */
static void *some_memory(void) {
    if (below(15) == 0) return NULL;
    if (below(6) == 0 && shared[0]) return shared[below(4)];
    return memory + 64 * below(1000);
}

static ncclDataType_t some_type(void) { return (ncclDataType_t)(below(12) == 0 ? (int)next() : (int)below(12)); }
static ncclRedOp_t some_op(void) {
    switch (below(8)) {
    case 0: return (ncclRedOp_t)next();
    case 1: return ops[below(4)];
    default: return (ncclRedOp_t)below(5);
    }
}
static int some_rank(void) { return below(10) == 0 ? (int)next() : (int)below(RANKS_MAX); }
static cudaStream_t some_stream(void) { return (cudaStream_t)(below(2) ? next() : 0); }

static void renew(void) {
    int ranks = 1 + (int)below(RANKS_MAX);
    int first = (int)below(COMMS - ranks);
    for (int r = 0; r < ranks; r++) {
        if (below(2)) ncclCommAbort(comms[first + r]);
        else ncclCommDestroy(comms[first + r]);
        comms[first + r] = NULL;
    }
    switch (below(4)) {
    case 0: {
        ncclUniqueId id;
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = (int)below(2);
        if (ncclGetUniqueId(&id) != ncclSuccess) return;
        ncclGroupStart();
        for (int r = 0; r < ranks; r++) ncclCommInitRankConfig(&comms[first + r], ranks, id, r, &config);
        ncclGroupEnd();
        break;
    }
    case 1: {
        /* Not everybody comes, or twice the same. */
        ncclUniqueId id;
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        if (ncclGetUniqueId(&id) != ncclSuccess) return;
        if (below(4) == 0) ((char *)&id)[below(128)] ^= (char)(1 << below(8));
        ncclCommInitRankConfig(&comms[first], 1 + (int)below(3), id, (int)below(2), &config);
        break;
    }
    default: ncclCommInitAll(&comms[first], ranks, NULL);
    }
}

/* One call at random; a group may be open. */
static void one_call(void) {
    int value;
    uint64_t bytes;
    ncclResult_t result;
    void *pointer;
    ncclComm_t out = NULL, comm = some_comm();
    ncclWaitSignalDesc_t wait = {(int)below(3), some_rank(), (int)(below(10) == 0), 0};
    switch (below(32)) {
    case 0:
        ncclAllReduce(some_memory(), some_memory(), some_count(), some_type(), some_op(), comm, some_stream()); break;
    case 1:
        ncclReduce(some_memory(), some_memory(), some_count(), some_type(), some_op(), some_rank(), comm,
            some_stream()); break;
    case 2:
        ncclBroadcast(some_memory(), some_memory(), some_count(), some_type(), some_rank(), comm, some_stream()); break;
    case 3: ncclBcast(some_memory(), some_count(), some_type(), some_rank(), comm, some_stream()); break;
    case 4: ncclAllGather(some_memory(), some_memory(), some_count(), some_type(), comm, some_stream()); break;
    case 5:
        ncclReduceScatter(some_memory(), some_memory(), some_count(), some_type(), some_op(), comm,
            some_stream()); break;
    case 6: ncclAlltoAll(some_memory(), some_memory(), some_count(), some_type(), comm, some_stream()); break;
    case 7:
        ncclGather(some_memory(), some_memory(), some_count(), some_type(), some_rank(), comm, some_stream()); break;
    case 8:
        ncclScatter(some_memory(), some_memory(), some_count(), some_type(), some_rank(), comm, some_stream()); break;
    case 9: ncclSend(some_memory(), some_count(), some_type(), some_rank(), comm, some_stream()); break;
    case 10: ncclRecv(some_memory(), some_count(), some_type(), some_rank(), comm, some_stream()); break;
    case 11:
        ncclPutSignal(some_memory(), some_count(), some_type(), some_rank(), windows[below(4)], below(8000), 0,
            0, 0, comm, NULL); break;
    case 12: ncclSignal(some_rank(), 0, 0, 0, comm, NULL); break;
    case 13: ncclWaitSignal((int)below(2), &wait, comm, NULL); break;
    case 14: ncclCommGetAsyncError(comm, &result); break;
    case 15: ncclCommCount(comm, &value); break;
    case 16: ncclCommMemStats(comm, (ncclCommMemStat_t)below(6), &bytes); break;
    case 17:
        ncclRedOpCreatePreMulSum(&ops[below(4)], memory, some_type(), (ncclScalarResidence_t)below(3), comm); break;
    case 18: ncclRedOpDestroy(some_op(), comm); break;
    case 19: ncclCommRegister(comm, some_memory(), some_count(), &pointer); break;
    case 20: ncclCommWindowDeregister(comm, windows[below(4)]); break;
    case 21: ncclWinGetUserPtr(comm, windows[below(4)], &pointer); break;
    case 22: ncclGetPeerDevicePointer(windows[below(4)], below(10000), some_rank(), &pointer); break;
    case 23: if (below(4) == 0) ncclCommFinalize(comm); break;
    case 24: if (below(8) == 0) ncclCommRevoke(comm, (int)below(2)); break;
    case 25: ncclCommSuspend(comm, (int)below(2)); break;
    case 26: ncclCommResume(comm); break;
    case 27: if (below(4) == 0) ncclCommSplit(comm, (int)below(3) - 1, some_rank(), &out, NULL); break;
    case 28:
        if (below(4) == 0) { int gone = some_rank(); ncclCommShrink(comm, &gone, 1, &out, NULL, (int)below(2)); } break;
    case 29: ncclCommUserRank(comm, &value); break;
    case 30: if (below(4) == 0) ncclCommWindowRegister(comm, shared[below(4)], 4096, &windows[below(4)], 0); break;
    case 31: ncclGetLastError(comm); break;
    }
    /* A communicator of a group is written when the group ends: it must not be written into this frame. */
    if (out != NULL) ncclCommAbort(out);
}

/* The same right call on all ranks of a communicator of this process, in a group. */
static void right_call(void) {
    ncclComm_t comm = comms[below(COMMS)];
    int count;
    if (ncclCommCount(comm, &count) != ncclSuccess) return;
    size_t elements = some_count();
    int kind = (int)below(4);
    ncclGroupStart();
    for (int at = 0; at < COMMS; at++) {
        int rank;
        if (ncclCommUserRank(comms[at], &rank) != ncclSuccess) continue;
        char *mine = memory + at * 65536;
        if (kind == 0) ncclAllReduce(mine, mine, elements, ncclFloat, ncclSum, comms[at], NULL);
        else if (kind == 1) ncclBroadcast(mine, mine, elements, ncclInt8, 0, comms[at], NULL);
        else ncclAllGather(mine, mine + 8192, below(2) ? elements : 7, ncclInt8, comms[at], NULL);
    }
    ncclGroupEnd();
}

int main(int argc, char **argv) {
    state = argc > 1 ? strtoull(argv[1], NULL, 10) * 0x9e3779b97f4a7c15ULL + 1 : 1;
    double limit = argc > 2 ? atof(argv[2]) : 5, begin = seconds(), slowest = 0;
    memory = calloc(1, 4 * BYTES);
    for (int i = 0; i < 4; i++) OK(ncclMemAlloc(&shared[i], BYTES));
    OK(ncclCommInitAll(comms, 4, NULL));
    unsigned long calls = 0;
    while (seconds() - begin < limit) {
        double before = seconds();
        switch (below(10)) {
        case 0: renew(); break;
        case 1:
        case 2:
        case 3: right_call(); break;
        case 4: {
            int depth = 1 + (int)below(3);
            for (int i = 0; i < depth; i++) ncclGroupStart();
            for (int i = (int)below(6); i > 0; i--) {
                /* What writes handles later is left to `renew`. */
                ncclSend(some_memory(), some_count(), some_type(), some_rank(), some_comm(), NULL);
                ncclRecv(some_memory(), some_count(), some_type(), some_rank(), some_comm(), NULL);
                ncclAllReduce(some_memory(), some_memory(), some_count(), some_type(), some_op(), some_comm(), NULL);
            }
            for (int i = 0; i < depth + (int)below(2); i++) ncclGroupEnd();
            break;
        }
        default: one_call(); break;
        }
        calls++;
        if (seconds() - before > slowest) slowest = seconds() - before;
    }
    for (int at = 0; at < COMMS; at++) ncclCommAbort(comms[at]);
    for (int i = 0; i < 4; i++) OK(ncclMemFree(shared[i]));
    printf("done: %lu calls, slowest %.3f s\n", calls, slowest);
    if (slowest > 15) FAIL("a call took %g s", slowest);
    return 0;
}
