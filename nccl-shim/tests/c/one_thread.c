/* One thread, many devices: every collective in a group over all ranks. */
#include "check.h"

enum { N = 4, COUNT = 1000 };

static float *buffers[2][N];

static float *send_of(int rank) { return buffers[0][rank]; }
static float *recv_of(int rank) { return buffers[1][rank]; }

static void fill(void) {
    for (int rank = 0; rank < N; rank++)
        for (int i = 0; i < N * COUNT; i++) {
            send_of(rank)[i] = (float)(rank * 10 + i % 7);
            recv_of(rank)[i] = -1;
        }
}

static float sum_at(int i) {
    float sum = 0;
    for (int rank = 0; rank < N; rank++) sum += (float)(rank * 10 + i % 7);
    return sum;
}

#define ALL(call)                                         \
    do {                                                  \
        fill();                                           \
        OK(ncclGroupStart());                             \
        for (int r = 0; r < N; r++) OK(call);             \
        OK(ncclGroupEnd());                               \
    } while (0)

int main(void) {
    ncclComm_t comms[N];
    int devices[N] = {0, 1, 2, 3};
    int version;
    OK(ncclGetVersion(&version));
    TRUE(version == 23007 && version == NCCL_VERSION_CODE);
    OK(ncclCommInitAll(comms, N, devices));
    for (int r = 0; r < N; r++) {
        int count, rank, device;
        OK(ncclCommCount(comms[r], &count));
        OK(ncclCommUserRank(comms[r], &rank));
        OK(ncclCommCuDevice(comms[r], &device));
        TRUE(count == N && rank == r && device == r);
        for (int side = 0; side < 2; side++) buffers[side][r] = malloc(N * COUNT * sizeof(float));
    }
    ALL(ncclAllReduce(send_of(r), recv_of(r), COUNT, ncclFloat, ncclSum, comms[r], NULL));
    for (int r = 0; r < N; r++)
        for (int i = 0; i < COUNT; i++) TRUE(recv_of(r)[i] == sum_at(i));
    ALL(ncclAllReduce(send_of(r), send_of(r), COUNT, ncclFloat, ncclMax, comms[r], NULL));
    for (int i = 0; i < COUNT; i++) TRUE(send_of(1)[i] == (float)((N - 1) * 10 + i % 7));
    ALL(ncclReduce(send_of(r), r == 2 ? recv_of(r) : NULL, COUNT, ncclFloat, ncclAvg, 2, comms[r], NULL));
    for (int i = 0; i < COUNT; i++) TRUE(recv_of(2)[i] == sum_at(i) / N && recv_of(1)[i] == -1);
    ALL(ncclBroadcast(r == 1 ? send_of(r) : NULL, recv_of(r), COUNT, ncclFloat, 1, comms[r], NULL));
    for (int r = 0; r < N; r++)
        for (int i = 0; i < COUNT; i++) TRUE(recv_of(r)[i] == (float)(10 + i % 7));
    ALL(ncclBcast(send_of(r), COUNT, ncclFloat, 3, comms[r], NULL));
    for (int r = 0; r < N; r++) TRUE(send_of(r)[5] == 35);
    ALL(ncclAllGather(send_of(r), recv_of(r), COUNT, ncclFloat, comms[r], NULL));
    for (int r = 0; r < N; r++)
        for (int i = 0; i < N * COUNT; i++) TRUE(recv_of(r)[i] == (float)(i / COUNT * 10 + i % COUNT % 7));
    ALL(ncclReduceScatter(send_of(r), recv_of(r), COUNT, ncclFloat, ncclSum, comms[r], NULL));
    for (int r = 0; r < N; r++)
        for (int i = 0; i < COUNT; i++) TRUE(recv_of(r)[i] == sum_at(r * COUNT + i));
    ALL(ncclAlltoAll(send_of(r), recv_of(r), COUNT, ncclFloat, comms[r], NULL));
    for (int r = 0; r < N; r++)
        for (int i = 0; i < N * COUNT; i++)
            TRUE(recv_of(r)[i] == (float)(i / COUNT * 10 + (r * COUNT + i % COUNT) % 7));
    ALL(ncclGather(send_of(r), r == 3 ? recv_of(r) : NULL, COUNT, ncclFloat, 3, comms[r], NULL));
    for (int i = 0; i < N * COUNT; i++) TRUE(recv_of(3)[i] == (float)(i / COUNT * 10 + i % COUNT % 7));
    ALL(ncclScatter(r == 0 ? send_of(r) : NULL, recv_of(r), COUNT, ncclFloat, 0, comms[r], NULL));
    for (int r = 0; r < N; r++)
        for (int i = 0; i < COUNT; i++) TRUE(recv_of(r)[i] == (float)((r * COUNT + i) % 7));
    for (int r = 0; r < N; r++) OK(ncclCommFinalize(comms[r]));
    for (int r = 0; r < N; r++) OK(ncclCommDestroy(comms[r]));
    puts("done");
    return 0;
}
