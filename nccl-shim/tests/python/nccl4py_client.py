"""nccl4py's bindings on the library: every collective, messages, groups, communicators of communicators."""

import multiprocessing
import sys

import numpy as np
from nccl.bindings import nccl as b

RANKS, COUNT, STREAM = 2, 8, 0
FLOAT, SUM, MAX = int(b.DataType.Float32), int(b.RedOp.Sum), int(b.RedOp.Max)


def at(array):
    return array.ctypes.data


def rank_main(rank, id_bytes):
    unique = bytearray(id_bytes)
    box = b.PointerBox()
    b.comm_init_rank(box.address, RANKS, unique, rank)
    comm = box.ptr
    assert (b.comm_count(comm), b.comm_user_rank(comm), b.comm_cu_device(comm)) == (RANKS, rank, 0)
    assert b.comm_get_async_error(comm) == 0
    mine = np.full(COUNT, rank + 1, np.float32)
    out = np.zeros(COUNT, np.float32)
    both = np.zeros(RANKS * COUNT, np.float32)
    other = np.zeros(RANKS * COUNT, np.float32)
    b.all_reduce(at(mine), at(out), COUNT, FLOAT, SUM, comm, STREAM)
    assert (out == 3).all(), out
    b.reduce(at(mine), at(out), COUNT, FLOAT, MAX, 0, comm, STREAM)
    assert rank != 0 or (out == 2).all()
    b.broadcast(at(mine), at(out), COUNT, FLOAT, 1, comm, STREAM)
    assert (out == 2).all()
    b.bcast(at(out), COUNT, FLOAT, 0, comm, STREAM)
    b.all_gather(at(mine), at(both), COUNT, FLOAT, comm, STREAM)
    assert (both == np.repeat([1, 2], COUNT)).all()
    b.reduce_scatter(at(both), at(out), COUNT, FLOAT, SUM, comm, STREAM)
    assert (out == 2 * (rank + 1)).all()
    b.allto_all(at(both), at(other), COUNT, FLOAT, comm, STREAM)
    assert (other == rank + 1).all()
    b.gather(at(mine), at(other), COUNT, FLOAT, 1, comm, STREAM)
    assert rank != 1 or (other == both).all()
    b.scatter(at(both), at(out), COUNT, FLOAT, 0, comm, STREAM)
    assert (out == rank + 1).all()
    b.group_start()
    b.send(at(mine), COUNT, FLOAT, 1 - rank, comm, STREAM)
    b.recv(at(out), COUNT, FLOAT, 1 - rank, comm, STREAM)
    b.group_end()
    assert (out == 2 - rank).all()
    half = np.array([0.5], np.float32)
    op = b.red_op_create_pre_mul_sum(at(half), FLOAT, int(b.ScalarResidence.HostImmediate), comm)
    b.all_reduce(at(mine), at(out), COUNT, FLOAT, op, comm, STREAM)
    assert (out == 1.5).all()
    b.red_op_destroy(op, comm)
    alone = b.PointerBox()
    b.comm_split(comm, rank, 0, alone.address, 0)
    assert b.comm_count(alone.ptr) == 1
    b.comm_destroy(alone.ptr)
    try:
        b.all_reduce(at(mine), at(out), COUNT, 99, SUM, comm, STREAM)
    except b.NCCLError as error:
        assert "nvalid" in str(error), error
        assert "invalid type 99" in b.get_last_error(comm), b.get_last_error(comm)
    else:
        raise AssertionError("a type that is none was taken")
    b.comm_finalize(comm)
    b.comm_destroy(comm)


def main():
    assert b.get_version() == 23007
    unique = b.get_unique_id()
    id_bytes = bytes(np.ctypeslib.as_array((np.ctypeslib.ctypes.c_ubyte * 128).from_address(unique.ptr)))
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=rank_main, args=(rank, id_bytes)) for rank in range(RANKS)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60)
    codes = [rank.exitcode for rank in ranks]
    for rank in ranks:
        if rank.is_alive():
            rank.kill()
    print("done" if codes == [0] * RANKS else f"failed: {codes}")
    return 0 if codes == [0] * RANKS else 1


if __name__ == "__main__":
    sys.exit(main())
