/* One thread per device. */
#include "check.h"

enum { N = 4, COUNT = 5000 };
static ncclUniqueId id;

static void *one_rank(void *arg) {
    int rank = (int)(intptr_t)arg;
    ncclComm_t comm;
    OK(ncclCommInitRank(&comm, N, id, rank));
    double *data = malloc(COUNT * sizeof *data);
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < COUNT; i++) data[i] = rank + i;
        OK(ncclAllReduce(data, data, COUNT, ncclDouble, ncclSum, comm, (cudaStream_t)0x1234));
        for (int i = 0; i < COUNT; i++) TRUE(data[i] == N * (N - 1) / 2 + N * (double)i);
    }
    free(data);
    OK(ncclCommFinalize(comm));
    OK(ncclCommDestroy(comm));
    return NULL;
}

int main(void) {
    OK(ncclGetUniqueId(&id));
    pthread_t threads[N];
    for (intptr_t rank = 0; rank < N; rank++) pthread_create(&threads[rank], NULL, one_rank, (void *)rank);
    for (int rank = 0; rank < N; rank++) pthread_join(threads[rank], NULL);
    puts("done");
    return 0;
}
