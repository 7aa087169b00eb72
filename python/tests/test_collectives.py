"""Every collective, type and reduction of the backend against what it is by definition."""

import itertools
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist

import ranks

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex32, torch.complex64, torch.complex128]
COPIED = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]
OPS = dist.ReduceOp


def value(rank, count, dtype):
    """A tensor that every rank can compute for every other: small numbers, so that sums are exact."""
    numbers = (torch.arange(count) * 7 + rank * 3) % 5 + 1
    if dtype is torch.bool:
        return numbers % 2 == 0
    if dtype.is_complex:
        return torch.complex(numbers.double(), (numbers + rank).double()).to(dtype)
    return numbers.double().to(dtype) if dtype.is_floating_point else numbers.to(dtype)


def reduced(op, ranks, count, dtype):
    """What a reduction gives, computed in a type that has all operations."""
    wide = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64
    all_values = torch.stack([value(rank, count, dtype).to(wide) for rank in range(ranks)])
    steps = {
        OPS.SUM: lambda: all_values.sum(0),
        OPS.AVG: lambda: all_values.sum(0) / ranks if wide is not torch.int64 else all_values.sum(0) // ranks,
        OPS.PRODUCT: lambda: all_values.prod(0),
        OPS.MIN: lambda: all_values.amin(0),
        OPS.MAX: lambda: all_values.amax(0),
    }
    bits = {OPS.BAND: torch.bitwise_and, OPS.BOR: torch.bitwise_or, OPS.BXOR: torch.bitwise_xor}
    if op in steps:
        result = steps[op]()
    else:
        result = all_values[0]
        for other in all_values[1:]:
            result = bits[op](result, other)
    return (result != 0 if dtype is torch.bool else result).to(dtype)


def same(found, expected, what):
    found, expected = found.contiguous(), expected.contiguous()
    equal = found.shape == expected.shape and bytes(found.view(torch.uint8).numpy()) == bytes(
        expected.view(torch.uint8).numpy()
    )
    is_short = expected.dtype in (torch.float16, torch.bfloat16, torch.complex32)
    close = equal or (  # averages are rounded in another order
        (expected.is_floating_point() or expected.is_complex())
        and torch.allclose(found.to(torch.complex128), expected.to(torch.complex128), rtol=1e-2 if is_short else 1e-6)
    )
    assert close or found.numel() == 0, f"{what}: {found} instead of {expected}"


def every_reduction(rank, n):
    ops = [OPS.SUM, OPS.PRODUCT, OPS.MIN, OPS.MAX, OPS.AVG]
    cases = [(dtype, op) for dtype in INTEGERS + FLOATS for op in ops]
    cases += [(dtype, op) for dtype in INTEGERS for op in (OPS.BAND, OPS.BOR, OPS.BXOR)]
    cases += [(torch.bool, op) for op in (OPS.SUM, OPS.PRODUCT, OPS.MIN, OPS.MAX, OPS.BAND, OPS.BOR, OPS.BXOR)]
    cases += [(dtype, op) for dtype in COMPLEX for op in (OPS.SUM, OPS.AVG)]
    for (dtype, op), count in itertools.product(cases, (0, 1, 13)):
        what = f"{dtype} {op} {count}"
        expected = reduced(op, n, count, dtype) if count else value(0, 0, dtype)
        tensor = value(rank, count, dtype)
        dist.all_reduce(tensor, op)
        same(tensor, expected, f"all_reduce {what}")
        tensor = value(rank, count, dtype)
        dist.reduce(tensor, n - 1, op)
        if rank == n - 1:
            same(tensor, expected, f"reduce {what}")
        whole, part = value(rank, count * n, dtype), torch.empty(count, dtype=dtype)
        dist.reduce_scatter_tensor(part, whole, op)
        if count:
            same(part, reduced(op, n, count * n, dtype)[rank * count :][:count], f"reduce_scatter {what}")
    factor = dist._make_nccl_premul_sum(0.5)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.complex64):
        tensor = value(rank, 9, dtype) * 2
        dist.all_reduce(tensor, factor)
        same(tensor, reduced(OPS.SUM, n, 9, dtype), f"premul_sum {dtype}")


def every_copy(rank, n):
    for dtype in [*INTEGERS, *FLOATS, *COMPLEX, *COPIED, torch.bool]:
        def make(rank, count, dtype=dtype):
            return value(rank, count, torch.float32).to(dtype) if dtype in COPIED else value(rank, count, dtype)

        for count in (0, 1, 5):
            what = f"{dtype} {count}"
            mine, all_values = make(rank, count), [make(peer, count) for peer in range(n)]
            tensor = mine.clone()
            dist.broadcast(tensor, n - 1)
            same(tensor, all_values[n - 1], f"broadcast {what}")
            found = [torch.empty_like(mine) for _ in range(n)]
            dist.all_gather(found, mine)
            for one, other in zip(found, all_values):
                same(one, other, f"all_gather {what}")
            flat = torch.empty(n * count, dtype=dtype)
            dist.all_gather_into_tensor(flat, mine)
            for peer in range(n):
                same(flat[peer * count :][:count], all_values[peer], f"all_gather_into_tensor {what}")
            found = [torch.empty_like(mine) for _ in range(n)] if rank == 0 else None
            dist.gather(mine, found, dst=0)
            for one, other in zip(found or [], all_values):
                same(one, other, f"gather {what}")
            tensor = torch.empty_like(mine)
            dist.scatter(tensor, all_values if rank == n - 1 else None, src=n - 1)
            same(tensor, all_values[rank], f"scatter {what}")
            sent = [make(rank * n + peer, count) for peer in range(n)]
            found = [torch.empty_like(mine) for _ in range(n)]
            dist.all_to_all(found, sent)
            for peer in range(n):
                same(found[peer], make(peer * n + rank, count), f"all_to_all {what}")
            if rank < 2 and n > 1:
                if rank == 0:
                    dist.send(mine, 1, tag=7)
                else:
                    tensor = torch.empty_like(mine)
                    assert dist.recv(tensor, 0, tag=7) == 0
                    same(tensor, all_values[0], f"send {what}")


def uneven(rank, n):
    counts = [peer + 1 for peer in range(n)]
    found = [torch.empty(count) for count in counts]
    dist.all_gather(found, torch.full((counts[rank],), float(rank)))
    assert [one.tolist() for one in found] == [[float(peer)] * counts[peer] for peer in range(n)]
    part = torch.empty(counts[rank], dtype=torch.int16)
    dist.reduce_scatter(part, [torch.full((count,), rank + 1, dtype=torch.int16) for count in counts])
    assert part.tolist() == [n * (n + 1) // 2] * counts[rank]
    # Rank r sends r + peer rows to each peer.
    sent = torch.cat([torch.full((rank + peer, 2), 10.0 * rank + peer) for peer in range(n)])
    sizes = [rank + peer for peer in range(n)]
    found = torch.empty(sum(sizes), 2)
    dist.all_to_all_single(found, sent, sizes, sizes)
    expected = torch.cat([torch.full((rank + peer, 2), 10.0 * peer + rank) for peer in range(n)])
    assert torch.equal(found, expected), (found, expected)
    lists = [torch.full((rank + peer,), 10.0 * rank + peer) for peer in range(n)]
    outputs = [torch.empty(rank + peer) for peer in range(n)]
    dist.all_to_all(outputs, lists)
    assert torch.equal(torch.cat(outputs), expected[:, 0])


def layouts(rank, n):
    """Tensors whose elements do not lie in order, before, after, and as views of others."""
    grid = torch.arange(12.0).view(3, 4)
    for view in (grid.clone().t(), grid.clone()[:, ::2], grid.clone()[1:, 1:3], torch.ones(1).expand(4).clone()):
        expected = view.clone() * n
        dist.all_reduce(view)
        assert torch.equal(view, expected)
    work = dist.all_reduce(late := grid.clone().t(), async_op=True)
    work.wait()
    assert torch.equal(late, grid.t() * n)
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    dist.broadcast(image, 0)
    outputs = torch.empty(4, 3 * n).t()
    dist.all_gather(list(outputs.chunk(n)), grid[:, :].clone().view(3, 4))
    assert torch.equal(outputs, grid.repeat(n, 1))
    parameter = torch.nn.Parameter(torch.full((3,), float(rank)))
    with torch.no_grad():
        dist.broadcast(parameter, n - 1)
    assert parameter.tolist() == [n - 1.0] * 3


def messages(rank, n):
    """Tags, receives from any rank, many at a time, in other orders than they were sent."""
    if rank == 0:
        for tag in (3, 1, 2):
            for peer in range(1, n):
                dist.send(torch.tensor([float(tag)]), peer, tag=tag)
        found, sources = torch.empty(1), set()
        for _ in range(1, n):
            sources.add(dist.recv(found, tag=9))
        assert sources == set(range(1, n)), sources
    else:
        found = torch.empty(1)
        for tag in (1, 2, 3):
            assert dist.recv(found, 0, tag=tag) == 0 and found.item() == tag
        dist.send(torch.tensor([1.0]), 0, tag=9)
    # A ring of large messages: all send before they receive.
    large, other = torch.full((1 << 18,), float(rank)), torch.empty(1 << 18)
    works = [dist.isend(large, (rank + 1) % n), dist.irecv(other, (rank - 1) % n)]
    for work in works:
        work.wait()
    assert other[0].item() == (rank - 1) % n == other[-1].item()
    ops = [dist.P2POp(dist.irecv, other, (rank - 1) % n), dist.P2POp(dist.isend, large + 1, (rank + 1) % n)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert other[-1].item() == (rank - 1) % n + 1
    if rank == 0:
        work = dist.irecv(found)
        dist.barrier()
        while not work.is_completed():
            pass
        assert work._source_rank() == n - 1 and found.item() == 5.0
    else:
        dist.barrier()
        if rank == n - 1:
            dist.send(torch.tensor([5.0]), 0)


def coalesced(rank, n):
    tensors = [torch.full((k + 1,), float(rank)) for k in range(4)]
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    total = n * (n - 1) / 2
    assert all((tensor == total).all() for tensor in tensors)
    outputs = [torch.empty(n * 2) for _ in range(3)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for k, output in enumerate(outputs):
            dist.all_gather_into_tensor(output, torch.full((2,), float(10 * k + rank)))
    manager.wait()
    for k, output in enumerate(outputs):
        assert output[::2].tolist() == [10.0 * k + peer for peer in range(n)]


def futures(rank, n):
    """A future ends by itself, holds a list of tensors, and calls what is chained to it; errors reach it."""
    tensor = torch.ones(1 << 20)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    assert doubled.wait()[0].item() == 2 * n
    done = dist.all_reduce(torch.ones(1)) or dist.all_reduce(torch.ones(1), async_op=True)
    done.wait()
    assert done.result()[0].item() == n
    assert done.get_future().wait()[0].item() == n and done.is_success()
    many = [torch.full((1000,), float(k)) for k in range(50)]
    works = [dist.all_reduce(one, async_op=True) for one in many]
    for k in reversed(range(50)):
        works[k].wait()
        assert many[k][0].item() == k * n
    dropped = [dist.all_reduce(torch.ones(1 << 16), async_op=True) for _ in range(8)]
    del dropped
    dist.barrier()


def groups(rank, n):
    for _ in range(3):
        pair = dist.new_group([0, n - 1])
        if rank in (0, n - 1):
            tensor = torch.ones(1)
            dist.all_reduce(tensor, group=pair)
            assert tensor.item() == len({0, n - 1})
            dist.destroy_process_group(pair)
    halves, _ = dist.new_subgroups_by_enumeration([[0], list(range(1, n))])
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=halves)
    assert tensor.item() == (1 if rank == 0 else n - 1)
    part = dist.split_group(split_ranks=[[0], list(range(1, n))])
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=part)
    assert tensor.item() == (1 if rank == 0 else n - 1)
    objects = [None] * n
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * (100 * rank)})
    assert [one["rank"] for one in objects] == list(range(n))
    told = [{"a": 1}, None] if rank == 0 else [None, None]
    dist.broadcast_object_list(told)
    assert told == [{"a": 1}, None]
    dist.monitored_barrier(timeout=timedelta(seconds=10))
    dist.monitored_barrier(timeout=timedelta(seconds=10), wait_all_ranks=True)


def functional(rank, n):
    from torch.distributed import _functional_collectives as funcol

    group = dist.group.WORLD
    assert funcol.all_reduce(torch.ones(3), "sum", group).tolist() == [n] * 3
    assert funcol.all_gather_tensor(torch.full((1,), float(rank)), 0, group).tolist() == list(range(n))
    assert funcol.reduce_scatter_tensor(torch.ones(n), "avg", 0, group).tolist() == [1.0]
    both = funcol.all_reduce_coalesced([torch.ones(1), torch.ones(2)], "sum", group)
    assert both[1].tolist() == [n, n]
    assert funcol.all_to_all_single(torch.arange(n).float(), None, None, group).tolist() == [float(rank)] * n


def refused(rank, n):
    """Wrong calls are refused with a text, and the group goes on."""
    wrong = [
        (lambda: dist.all_reduce(torch.ones(1), OPS.BAND), "BAND"),
        (lambda: dist.all_reduce(torch.ones(1, dtype=torch.complex64), OPS.MAX), "complex"),
        (lambda: dist.all_reduce(torch.ones(1, dtype=torch.bool), OPS.AVG), "AVG"),
        (lambda: dist.all_gather_into_tensor(torch.ones(n + 1), torch.ones(1)), "elements"),
        (lambda: dist.send(torch.ones(1), (rank + 1) % n, tag=-1), "negative"),
    ]
    for call, text in wrong:
        try:
            call()
        except (RuntimeError, ValueError, NotImplementedError) as error:
            assert text.lower() in str(error).lower(), error
        else:
            raise AssertionError(f"{text}: not refused")
    dist.barrier()


class Collectives(unittest.TestCase):
    """Each case on 2 and 3 ranks."""

    def on_ranks(self, case):
        for n in (2, 3):
            with self.subTest(ranks=n):
                ranks.run(case, n)


for _case in (
    every_reduction, every_copy, uneven, layouts, messages, coalesced, futures, groups, functional, refused
):  # fmt: skip
    setattr(Collectives, f"test_{_case.__name__}", lambda self, case=_case: self.on_ranks(case))


if __name__ == "__main__":
    unittest.main()
