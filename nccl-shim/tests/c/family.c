/* Communicators that come from others, and what is asked of one. */
#include "check.h"

static void shrinks(int rank, int nranks, ncclUniqueId id) {
    ncclComm_t comm, rest = NULL;
    OK(ncclCommInitRank(&comm, nranks, id, rank));
    int gone[1] = {1};
    if (rank == 1) return; /* As if it had died. */
    float one = 1, sum = 0;
    ncclResult_t result = ncclAllReduce(&one, &sum, 1, ncclFloat, ncclSum, comm, NULL);
    TRUE(result == ncclRemoteError);
    TRUE(strstr(ncclGetLastError(NULL), "rank 1") != NULL);
    OK(ncclCommShrink(comm, gone, 1, &rest, NULL, NCCL_SHRINK_ABORT));
    OK(ncclAllReduce(&one, &sum, 1, ncclFloat, ncclSum, rest, NULL));
    TRUE(sum == nranks - 1);
    OK(ncclCommAbort(comm));
    OK(ncclCommDestroy(rest));
}

static void revoked(int rank, int nranks, ncclUniqueId id) {
    ncclComm_t comm, rest = NULL;
    OK(ncclCommInitRank(&comm, nranks, id, rank));
    float one = 1, sum = 0;
    OK(ncclAllReduce(&one, &sum, 1, ncclFloat, ncclSum, comm, NULL));
    IS(ncclCommRevoke(comm, 1), ncclInvalidArgument);
    OK(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    IS(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), ncclInvalidArgument);
    IS(ncclAllReduce(&one, &sum, 1, ncclFloat, ncclSum, comm, NULL), ncclInvalidUsage);
    IS(ncclCommFinalize(comm), ncclInvalidArgument);
    int gone[1] = {2};
    if (rank != 2) {
        OK(ncclCommShrink(comm, gone, 1, &rest, NULL, NCCL_SHRINK_DEFAULT));
        OK(ncclAllReduce(&one, &sum, 1, ncclFloat, ncclSum, rest, NULL));
        TRUE(sum == nranks - 1);
        OK(ncclCommDestroy(rest));
    }
    OK(ncclCommDestroy(comm));
}

static int to_new[2];

static void grows(int rank, int nranks, ncclUniqueId id) {
    ncclUniqueId more;
    ncclComm_t comm = NULL, grown = NULL;
    int old = nranks - 1;
    if (rank < old) {
        OK(ncclCommInitRank(&comm, old, id, rank));
        if (rank == 0) {
            OK(ncclCommGetUniqueId(comm, &more));
            TRUE(write(to_new[1], &more, sizeof more) == sizeof more);
        }
        IS(ncclCommGrow(comm, nranks, NULL, 0, &grown, NULL), ncclInvalidArgument);
        IS(ncclCommGrow(comm, old, NULL, -1, &grown, NULL), ncclInvalidArgument);
        OK(ncclCommGrow(comm, nranks, NULL, -1, &grown, NULL));
    } else {
        TRUE(read(to_new[0], &more, sizeof more) == sizeof more);
        IS(ncclCommGrow(NULL, nranks, NULL, rank, &grown, NULL), ncclInvalidArgument);
        OK(ncclCommGrow(NULL, nranks, &more, rank, &grown, NULL));
    }
    int64_t mine = rank, sum;
    OK(ncclAllReduce(&mine, &sum, 1, ncclInt64, ncclSum, grown, NULL));
    TRUE(sum == nranks * (nranks - 1) / 2);
    OK(ncclCommDestroy(grown));
    OK(ncclCommDestroy(comm));
}

static void asked(int rank, int nranks, ncclUniqueId id) {
    ncclComm_t comm;
    OK(ncclCommInitRank(&comm, nranks, id, rank));
    /* Operators of the program: read now, and read when they run. */
    float factor = 0.5f, mine = 2, sum = 0;
    ncclRedOp_t now, later;
    OK(ncclRedOpCreatePreMulSum(&now, &factor, ncclFloat, ncclScalarHostImmediate, comm));
    OK(ncclRedOpCreatePreMulSum(&later, &factor, ncclFloat, ncclScalarDevice, comm));
    factor = 3;
    OK(ncclAllReduce(&mine, &sum, 1, ncclFloat, now, comm, NULL));
    TRUE(sum == nranks * 1.0f);
    OK(ncclAllReduce(&mine, &sum, 1, ncclFloat, later, comm, NULL));
    TRUE(sum == nranks * 6.0f);
    double wrong = 1;
    IS(ncclAllReduce(&wrong, &wrong, 1, ncclDouble, now, comm, NULL), ncclInvalidArgument);
    OK(ncclRedOpDestroy(now, comm));
    IS(ncclRedOpDestroy(now, comm), ncclInvalidArgument);
    IS(ncclAllReduce(&mine, &sum, 1, ncclFloat, now, comm, NULL), ncclInvalidArgument);
    /* Memory. */
    uint64_t bytes = 0;
    OK(ncclCommMemStats(comm, ncclStatGpuMemTotal, &bytes));
    TRUE(bytes > 0);
    OK(ncclCommMemStats(comm, ncclStatGpuMemSuspended, &bytes));
    TRUE(bytes == 0);
    IS(ncclCommMemStats(comm, (ncclCommMemStat_t)9, &bytes), ncclInvalidArgument);
    OK(ncclCommSuspend(comm, NCCL_SUSPEND_MEM));
    IS(ncclAllReduce(&mine, &sum, 1, ncclFloat, ncclSum, comm, NULL), ncclInvalidUsage);
    OK(ncclCommMemStats(comm, ncclStatGpuMemSuspended, &bytes));
    TRUE(bytes == 1);
    OK(ncclCommResume(comm));
    OK(ncclAllReduce(&mine, &sum, 1, ncclFloat, ncclSum, comm, NULL));
    /* A simulated group runs nothing and tells a time. */
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    OK(ncclGroupStart());
    OK(ncclGroupSimulateEnd(&info));
    TRUE(info.estimatedTime == NCCL_UNDEF_FLOAT);
    static float large[1 << 18];
    sum = -5;
    OK(ncclGroupStart());
    OK(ncclAllReduce(large, large, 1 << 18, ncclFloat, ncclSum, comm, NULL));
    OK(ncclAllReduce(&mine, &sum, 1, ncclFloat, ncclSum, comm, NULL));
    OK(ncclGroupSimulateEnd(&info));
    TRUE(sum == -5 && info.estimatedTime > 0);
    float small_time = info.estimatedTime;
    OK(ncclGroupStart());
    OK(ncclAllReduce(large, large, 1 << 18, ncclFloat, ncclSum, comm, NULL));
    OK(ncclGroupSimulateEnd(&info));
    TRUE(info.estimatedTime > small_time);
    info.magic = 5;
    IS(ncclGroupSimulateEnd(&info), ncclInvalidArgument);
    /* Registration. */
    void *handle = NULL, *again = NULL;
    OK(ncclCommRegister(comm, large, sizeof large, &handle));
    OK(ncclCommRegister(comm, large, 64, &again));
    TRUE(handle == again && handle != NULL);
    OK(ncclCommDeregister(comm, handle));
    OK(ncclCommDeregister(comm, handle));
    IS(ncclCommDeregister(comm, handle), ncclInvalidUsage);
    OK(ncclCommFinalize(comm));
    IS(ncclCommFinalize(comm), ncclInvalidArgument);
    IS(ncclAllReduce(&mine, &sum, 1, ncclFloat, ncclSum, comm, NULL), ncclInvalidArgument);
    OK(ncclCommDestroy(comm));
    IS(ncclCommDestroy(comm), ncclInvalidArgument);
}

int main(void) {
    if (pipe(to_new) != 0) FAIL("pipe");
    processes(3, asked);
    processes(3, shrinks);
    processes(3, revoked);
    processes(3, grows);
    puts("done");
    return 0;
}
