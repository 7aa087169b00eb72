/* Rows and columns of a grid, and ranks that are in no part. */
#include "check.h"

static void one_rank(int rank, int nranks, ncclUniqueId id) {
    ncclComm_t comm, row, column, some;
    OK(ncclCommInitRank(&comm, nranks, id, rank));
    OK(ncclCommSplit(comm, rank / 2, rank, &row, NULL));
    OK(ncclCommSplit(comm, rank % 2, -rank, &column, NULL));
    int place, count;
    OK(ncclCommUserRank(column, &place));
    OK(ncclCommCount(column, &count));
    TRUE(count == 2 && place == (rank < 2 ? 1 : 0));
    int32_t mine = rank, sum;
    OK(ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, row, NULL));
    TRUE(sum == (rank < 2 ? 1 : 5));
    OK(ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, column, NULL));
    TRUE(sum == (rank % 2 == 0 ? 2 : 4));
    some = (ncclComm_t)1;
    OK(ncclCommSplit(comm, rank == 3 ? NCCL_SPLIT_NOCOLOR : -7, 0, &some, NULL));
    TRUE((some == NULL) == (rank == 3));
    if (some != NULL) {
        OK(ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, some, NULL));
        TRUE(sum == 3);
        OK(ncclCommDestroy(some));
    }
    ncclComm_t both[2];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.splitShare = 1;
    OK(ncclGroupStart());
    OK(ncclCommSplit(comm, 0, rank, &both[0], &config));
    OK(ncclGroupEnd());
    OK(ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, both[0], NULL));
    TRUE(sum == 6);
    OK(ncclCommDestroy(both[0]));
    OK(ncclCommDestroy(row));
    OK(ncclCommDestroy(column));
    OK(ncclCommDestroy(comm));
}

/* One thread splits the communicators of all its ranks in a group. */
static void one_thread(void) {
    ncclComm_t comms[4], parts[4];
    OK(ncclCommInitAll(comms, 4, NULL));
    OK(ncclGroupStart());
    for (int r = 0; r < 4; r++) OK(ncclCommSplit(comms[r], r / 2, r, &parts[r], NULL));
    OK(ncclGroupEnd());
    int32_t mine[4] = {1, 2, 3, 4}, sum[4];
    OK(ncclGroupStart());
    for (int r = 0; r < 4; r++) OK(ncclAllReduce(&mine[r], &sum[r], 1, ncclInt32, ncclSum, parts[r], NULL));
    OK(ncclGroupEnd());
    TRUE(sum[0] == 3 && sum[1] == 3 && sum[2] == 7 && sum[3] == 7);
    for (int r = 0; r < 4; r++) {
        OK(ncclCommDestroy(parts[r]));
        OK(ncclCommDestroy(comms[r]));
    }
}

int main(void) {
    processes(4, one_rank);
    one_thread();
    puts("done");
    return 0;
}
