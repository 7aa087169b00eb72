/* One process per device, as under an MPI launcher. */
#include "check.h"

static void one_rank(int rank, int nranks, ncclUniqueId id) {
    ncclComm_t comm;
    OK(ncclCommInitRank(&comm, nranks, id, rank));
    enum { COUNT = 100000 };
    int64_t *data = malloc(COUNT * sizeof *data), *sum = malloc(COUNT * sizeof *sum);
    for (int i = 0; i < COUNT; i++) data[i] = rank * 1000 + i;
    OK(ncclAllReduce(data, sum, COUNT, ncclInt64, ncclSum, comm, NULL));
    for (int i = 0; i < COUNT; i++) TRUE(sum[i] == 1000 * nranks * (nranks - 1) / 2 + (int64_t)nranks * i);
    IS(ncclCommInitRank(&comm, nranks, id, rank), ncclInvalidUsage);
    TRUE(comm == NULL && strstr(ncclGetLastError(NULL), "unique id") != NULL);
}

static void several_ids(int rank, int nranks, ncclUniqueId id) {
    ncclUniqueId ids[2] = {id, id};
    ncclComm_t comm;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.commName = "several";
    OK(ncclCommInitRankScalable(&comm, nranks, rank, 2, ids, &config));
    float one = 1, sum = 0;
    OK(ncclAllReduce(&one, &sum, 1, ncclFloat, ncclSum, comm, NULL));
    TRUE(sum == nranks);
    OK(ncclCommDestroy(comm));
}

int main(void) {
    processes(4, one_rank);
    processes(3, several_ids);
    processes(1, one_rank);
    puts("done");
    return 0;
}
