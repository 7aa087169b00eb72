/* The exchanges that the user guide makes of sends and receives. */
#include "check.h"

enum { COUNT = 3000 };

static void one_rank(int rank, int nranks, ncclUniqueId id) {
    ncclComm_t comm;
    OK(ncclCommInitRank(&comm, nranks, id, rank));
    int32_t *send = malloc(nranks * COUNT * sizeof *send), *recv = malloc(nranks * COUNT * sizeof *recv);
    for (int i = 0; i < nranks * COUNT; i++) send[i] = rank * 1000000 + i;
    int next = (rank + 1) % nranks, previous = (rank + nranks - 1) % nranks;
    /* Send and receive at once. */
    OK(ncclGroupStart());
    OK(ncclSend(send, COUNT, ncclInt32, next, comm, NULL));
    OK(ncclRecv(recv, COUNT, ncclInt32, previous, comm, NULL));
    OK(ncclGroupEnd());
    for (int i = 0; i < COUNT; i++) TRUE(recv[i] == previous * 1000000 + i);
    /* One to all. */
    OK(ncclGroupStart());
    if (rank == 1)
        for (int peer = 0; peer < nranks; peer++) OK(ncclSend(send + peer * COUNT, COUNT, ncclInt32, peer, comm, NULL));
    OK(ncclRecv(recv, COUNT, ncclInt32, 1, comm, NULL));
    OK(ncclGroupEnd());
    for (int i = 0; i < COUNT; i++) TRUE(recv[i] == 1000000 + rank * COUNT + i);
    /* All to one. */
    OK(ncclGroupStart());
    if (rank == 0)
        for (int peer = 0; peer < nranks; peer++) OK(ncclRecv(recv + peer * COUNT, COUNT, ncclInt32, peer, comm, NULL));
    OK(ncclSend(send, COUNT, ncclInt32, 0, comm, NULL));
    OK(ncclGroupEnd());
    if (rank == 0)
        for (int i = 0; i < nranks * COUNT; i++) TRUE(recv[i] == i / COUNT * 1000000 + i % COUNT);
    /* All to all. */
    OK(ncclGroupStart());
    for (int peer = 0; peer < nranks; peer++) {
        OK(ncclSend(send + peer * COUNT, COUNT, ncclInt32, peer, comm, NULL));
        OK(ncclRecv(recv + peer * COUNT, COUNT, ncclInt32, peer, comm, NULL));
    }
    OK(ncclGroupEnd());
    for (int i = 0; i < nranks * COUNT; i++) TRUE(recv[i] == i / COUNT * 1000000 + rank * COUNT + i % COUNT);
    /* Neighbours along a line; other types of the same bytes match. */
    OK(ncclGroupStart());
    if (rank > 0) OK(ncclSend(send, COUNT, ncclInt32, rank - 1, comm, NULL));
    if (rank > 0) OK(ncclRecv(recv, COUNT * 4, ncclInt8, rank - 1, comm, NULL));
    if (rank < nranks - 1) OK(ncclSend(send + COUNT, COUNT / 2, ncclDouble, rank + 1, comm, NULL));
    if (rank < nranks - 1) OK(ncclRecv(recv + COUNT, COUNT, ncclFloat, rank + 1, comm, NULL));
    if (rank == 0) OK(ncclSend(send, 0, ncclFloat, 0, comm, NULL));
    if (rank == 0) OK(ncclRecv(NULL, 0, ncclFloat, 0, comm, NULL));
    OK(ncclGroupEnd());
    if (rank < nranks - 1) TRUE(recv[COUNT] == (rank + 1) * 1000000);
    /* To itself alone it cannot send. */
    IS(ncclSend(send, 1, ncclInt32, rank, comm, NULL), ncclInvalidUsage);
    OK(ncclGroupStart());
    OK(ncclRecv(recv, 1, ncclInt32, rank, comm, NULL));
    IS(ncclGroupEnd(), ncclInvalidUsage);
    OK(ncclCommDestroy(comm));
}

int main(void) {
    processes(4, one_rank);
    puts("done");
    return 0;
}
