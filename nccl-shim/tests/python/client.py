"""A client of the library by ctypes: one process per rank, every collective, messages, groups."""

import ctypes
import multiprocessing
import os
import sys

INT32, FLOAT, SUM, MAX, AVG = 2, 7, 0, 2, 4
RANKS = 3


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


class Library:
    """The functions, with their results checked."""

    def __init__(self):
        self.handle = ctypes.CDLL("libnccl.so.2", mode=os.RTLD_NOW)
        self.handle.ncclGetErrorString.restype = ctypes.c_char_p
        self.handle.ncclGetLastError.restype = ctypes.c_char_p

    def __call__(self, name, *args):
        result = getattr(self.handle, name)(*args)
        if result != 0:
            what = self.handle.ncclGetErrorString(result).decode()
            raise RuntimeError(f"{name}: {what}: {self.handle.ncclGetLastError(None).decode()}")


def rank_main(rank, id_bytes):
    nccl = Library()
    comm = ctypes.c_void_p()
    nccl("ncclCommInitRank", ctypes.byref(comm), RANKS, UniqueId.from_buffer_copy(id_bytes), rank)
    count, stream = 4, ctypes.c_void_p(0xABCD)
    n = ctypes.c_size_t(count)

    def floats(values):
        return (ctypes.c_float * len(values))(*values)

    mine = floats([rank + 1.0] * count)
    out = floats([0.0] * count)
    nccl("ncclAllReduce", mine, out, n, FLOAT, SUM, comm, stream)
    assert list(out) == [6.0] * count, list(out)
    nccl("ncclAllReduce", mine, out, n, FLOAT, AVG, comm, stream)
    assert abs(out[0] - 2.0) < 1e-6, out[0]
    nccl("ncclReduce", mine, out, n, FLOAT, MAX, 1, comm, stream)
    if rank == 1:
        assert list(out) == [3.0] * count
    nccl("ncclBroadcast", mine, out, n, FLOAT, 2, comm, stream)
    assert list(out) == [3.0] * count
    everything = floats([0.0] * (count * RANKS))
    nccl("ncclAllGather", mine, everything, n, FLOAT, comm, stream)
    assert [everything[i * count] for i in range(RANKS)] == [1.0, 2.0, 3.0]
    nccl("ncclReduceScatter", everything, out, n, FLOAT, SUM, comm, stream)
    assert list(out) == [3.0 * (rank + 1)] * count
    other = floats([0.0] * (count * RANKS))
    nccl("ncclAlltoAll", everything, other, n, FLOAT, comm, stream)
    assert list(other) == [rank + 1.0] * (count * RANKS)
    nccl("ncclGather", mine, other, n, FLOAT, 0, comm, stream)
    if rank == 0:
        assert list(other) == list(everything)
    nccl("ncclScatter", everything, out, n, FLOAT, 0, comm, stream)
    assert list(out) == [rank + 1.0] * count
    nccl("ncclGroupStart")
    nccl("ncclSend", mine, n, FLOAT, (rank + 1) % RANKS, comm, stream)
    nccl("ncclRecv", out, n, FLOAT, (rank - 1) % RANKS, comm, stream)
    nccl("ncclGroupEnd")
    assert list(out) == [(rank - 1) % RANKS + 1.0] * count
    try:
        nccl("ncclAllReduce", mine, out, n, 99, SUM, comm, stream)
    except RuntimeError as error:
        assert "invalid argument" in str(error) and "99" in str(error), error
    else:
        raise AssertionError("a type that is none was taken")
    nccl("ncclCommDestroy", comm)


def main():
    nccl = Library()
    version = ctypes.c_int()
    nccl("ncclGetVersion", ctypes.byref(version))
    assert version.value == 23007, version.value
    # This process is no rank: it only hosts the rendezvous until all have met.
    unique = UniqueId()
    nccl("ncclGetUniqueId", ctypes.byref(unique))
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=rank_main, args=(rank, bytes(unique))) for rank in range(RANKS)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(40)
    codes = [rank.exitcode for rank in ranks]
    for rank in ranks:
        if rank.is_alive():
            rank.kill()
    print("done" if codes == [0] * RANKS else f"failed: {codes}")
    return 0 if codes == [0] * RANKS else 1


if __name__ == "__main__":
    sys.exit(main())
