/* Windows, puts and signals. */
#include "check.h"

enum { COUNT = 4096 };

/* The headers of the device interface are for C++ only. */
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void **out);
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void **out);

static void one_rank(int rank, int nranks, ncclUniqueId id) {
    ncclComm_t comm;
    OK(ncclCommInitRank(&comm, nranks, id, rank));
    int32_t *memory = NULL;
    OK(ncclMemAlloc((void **)&memory, 2 * COUNT * sizeof *memory));
    TRUE(memory != NULL && (uintptr_t)memory % 4096 == 0);
    ncclWindow_t window = NULL;
    /* Each rank registers another part. */
    int32_t *mine = memory + (rank % 2) * 1024;
    OK(ncclCommWindowRegister(comm, mine, COUNT * sizeof *memory, &window, NCCL_WIN_COLL_SYMMETRIC));
    TRUE(window != NULL);
    void *user = NULL;
    OK(ncclWinGetUserPtr(comm, window, &user));
    TRUE(user == mine);
    int next = (rank + 1) % nranks, previous = (rank + nranks - 1) % nranks;
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 100; i++) mine[i] = rank * 1000 + round * 100 + i;
        OK(ncclPutSignal(mine, 100, ncclInt32, next, window, 2000 * sizeof(int32_t), 0, 0, 0, comm, NULL));
        ncclWaitSignalDesc_t wait = {.opCnt = 1, .peer = previous, .sigIdx = 0, .ctx = 0};
        OK(ncclWaitSignal(1, &wait, comm, NULL));
        for (int i = 0; i < 100; i++) TRUE(mine[2000 + i] == previous * 1000 + round * 100 + i);
        OK(ncclSignal(previous, 0, 0, 0, comm, NULL));
        wait.peer = next;
        OK(ncclWaitSignal(1, &wait, comm, NULL));
    }
    void *there = NULL;
    OK(ncclGetPeerDevicePointer(window, 2000 * sizeof(int32_t), next, &there));
    TRUE(there != NULL && ((int32_t *)there)[0] == rank * 1000 + 900);
    /* All have read before anyone goes on and writes. */
    int32_t met = 1;
    OK(ncclAllReduce(&met, &met, 1, ncclInt32, ncclSum, comm, NULL));
    IS(ncclGetPeerDevicePointer(window, 0, nranks, &there), ncclInvalidArgument);
    OK(ncclGetLsaMultimemDevicePointer(window, 0, &there));
    TRUE(there == NULL);
    IS(ncclPutSignal(mine, 1, ncclInt32, next, window, 0, 1, 0, 0, comm, NULL), ncclInvalidArgument);
    IS(ncclPutSignal(mine, 1, ncclInt32, next, NULL, 0, 0, 0, 0, comm, NULL), ncclInvalidArgument);
    IS(ncclPutSignal(mine, 100, ncclInt32, next, window, COUNT * 4 - 100, 0, 0, 0, comm, NULL), ncclInvalidArgument);
    int32_t private = 1;
    IS(ncclPutSignal(&private, 1, ncclInt32, next, window, 0, 0, 0, 0, comm, NULL), ncclInvalidArgument);
    ncclWaitSignalDesc_t bad = {.opCnt = 0, .peer = 0, .sigIdx = 0, .ctx = 0};
    IS(ncclWaitSignal(1, &bad, comm, NULL), ncclInvalidArgument);
    IS(ncclWaitSignal(0, &bad, comm, NULL), ncclInvalidArgument);
    /* Collectives on windows are like others. */
    for (int i = 0; i < COUNT; i++) mine[i] = rank + i;
    OK(ncclAllReduce(mine, mine, COUNT, ncclInt32, ncclSum, comm, NULL));
    for (int i = 0; i < COUNT; i++) TRUE(mine[i] == nranks * (nranks - 1) / 2 + nranks * i);
    OK(ncclCommWindowDeregister(comm, window));
    IS(ncclCommWindowDeregister(comm, window), ncclInvalidArgument);
    OK(ncclCommWindowDeregister(comm, NULL));
    /* Windows come and go: what all have taken back goes at the next registration. */
    for (int round = 0; round < 20; round++) {
        OK(ncclCommWindowRegister(comm, memory, 4096, &window, 0));
        TRUE(window != NULL);
        OK(ncclCommWindowDeregister(comm, window));
    }
    /* Private memory of one rank makes no window for any, and no error. */
    void *buffer = rank == 0 ? malloc(4096) : memory;
    window = (ncclWindow_t)1;
    OK(ncclCommWindowRegister(comm, buffer, 4096, &window, 0));
    TRUE(window == NULL);
    OK(ncclMemFree(memory));
    IS(ncclMemFree(memory), ncclInvalidArgument);
    OK(ncclMemFree(NULL));
    OK(ncclCommDestroy(comm));
}

int main(void) {
    processes(3, one_rank);
    void *nothing = &nothing;
    OK(ncclMemAlloc(&nothing, 0));
    TRUE(nothing == NULL);
    IS(ncclMemAlloc(NULL, 8), ncclInvalidArgument);
    /* One thread, several ranks: windows are made in a group. */
    ncclComm_t comms[2];
    ncclWindow_t windows[2];
    int32_t *memory[2];
    OK(ncclCommInitAll(comms, 2, NULL));
    for (int r = 0; r < 2; r++) OK(ncclMemAlloc((void **)&memory[r], 4096));
    OK(ncclGroupStart());
    for (int r = 0; r < 2; r++) OK(ncclCommWindowRegister(comms[r], memory[r], 4096, &windows[r], 0));
    OK(ncclGroupEnd());
    TRUE(windows[0] != NULL && windows[1] != NULL);
    memory[0][0] = 77;
    ncclWaitSignalDesc_t wait = {.opCnt = 1, .peer = 0, .sigIdx = 0, .ctx = 0};
    OK(ncclGroupStart());
    OK(ncclWaitSignal(1, &wait, comms[1], NULL));
    OK(ncclPutSignal(memory[0], 1, ncclInt32, 1, windows[0], 64, 0, 0, 0, comms[0], NULL));
    OK(ncclGroupEnd());
    TRUE(memory[1][16] == 77);
    for (int r = 0; r < 2; r++) OK(ncclCommDestroy(comms[r]));
    for (int r = 0; r < 2; r++) OK(ncclMemFree(memory[r]));
    puts("done");
    return 0;
}
