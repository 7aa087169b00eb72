"""The backend in Python alone, on the same library, where no shim fits the installed torch.

Slower, and not everything that the shim is: collectives end before they return, also with `async_op=True`; messages
are started and waited for, but what torch makes of a Python Work does not tell the source of a receive from any rank;
profilers see no events; built-in C++ communication hooks do not work. `docs/pytorch.md` has the list.
"""

import ctypes
import secrets
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from . import _native
from ._native import KINDS, OK, PENDING, Op

try:
    from torch._C._distributed_c10d import Backend, Work
except ImportError as error:
    raise RuntimeError(f"ringccl: torch {torch.__version__} has no backends in Python; install g++") from error

# What torch keeps of a group is the C++ half of its backend; the Python half lives here.
_alive = []

_WIRE = {
    torch.int8: (0, 1), torch.uint8: (1, 1), torch.int32: (2, 1), torch.uint32: (3, 1), torch.int64: (4, 1),
    torch.uint64: (5, 1), torch.float16: (6, 1), torch.float32: (7, 1), torch.float64: (8, 1),
    torch.bfloat16: (9, 1), torch.float8_e4m3fn: (10, 1), torch.float8_e5m2: (11, 1), torch.bool: (1, 1),
    torch.complex32: (6, 2), torch.complex64: (7, 2), torch.complex128: (8, 2),
}  # fmt: skip
_WIDENED = (torch.int16, torch.uint16)
_OPS = dist.ReduceOp.RedOpType
_CODES = {
    _OPS.SUM: 0, _OPS.PRODUCT: 1, _OPS.MAX: 2, _OPS.MIN: 3, _OPS.AVG: 4, _OPS.BAND: 6, _OPS.BOR: 7, _OPS.BXOR: 8,
}  # fmt: skip
_OF_BOOLS = {
    _OPS.SUM: 2, _OPS.MAX: 2, _OPS.BOR: 2, _OPS.PRODUCT: 3, _OPS.MIN: 3, _OPS.BAND: 3, _OPS.BXOR: 8,
}  # fmt: skip


def _check(status, call):
    if status != OK:
        late = "Timed out: " if status == _native.TIMEOUT else ""
        raise dist.DistBackendError(f"ringccl: {call}: {late}{_native.last_error()}")


def _join(store, rank, size, timeout, reports):
    """A communicator of `size` ranks; the protocol is that of csrc/rendezvous.hpp."""
    lib, ns = _native.library(), max(int(timeout * 1e9), 1)
    settings = _native.Options(ns, ns, int(reports), 0)
    identity, comm = (ctypes.c_uint8 * _native.ID_BYTES)(), ctypes.c_void_p()
    if rank > 0:
        nonce = secrets.token_hex(8)
        store.set(f"ask/{rank}", nonce)
        store.wait([f"answer/{nonce}"], timedelta(seconds=timeout))
        identity[:] = store.get(f"answer/{nonce}")
        _check(lib.ringccl_comm_join(identity, rank, size, settings, comm), "joining")
        return comm
    root, over = ctypes.c_void_p(), threading.Event()
    _check(lib.ringccl_root_new(identity, root), "the rendezvous")

    def answer():
        seen = {}
        while not over.wait(0.002):
            for peer in range(1, size):
                if store.check([f"ask/{peer}"]) and (nonce := store.get(f"ask/{peer}")) != seen.get(peer):
                    store.set(f"answer/{nonce.decode()}", bytes(identity))
                    seen[peer] = nonce

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    try:
        _check(lib.ringccl_comm_join(identity, 0, size, settings, comm), "joining")
    finally:
        over.set()
        thread.join(timeout=5)
        lib.ringccl_root_free(root)
    return comm


def _counts(numbers):
    return (ctypes.c_uint64 * len(numbers))(*numbers)


def _flat(tensor):
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


class _Done(Work):
    """Something that has ended."""

    def __init__(self, outputs):
        super().__init__()
        self.outputs = outputs
        self.future = torch.futures.Future()
        self.future.set_result(outputs)

    def wait(self, timeout=None):
        return True

    def get_future(self):
        return self.future


class _Message(Work):
    """A message under way."""

    def __init__(self, backend, raw, tensor, flat):
        super().__init__()
        self.backend, self.raw, self.tensor, self.flat = backend, raw, tensor, flat
        self.lock = threading.Lock()

    def wait(self, timeout=None):
        limit = timeout.total_seconds() if timeout else 0
        ns = int(limit * 1e9) if limit > 0 else 1 << 62
        with self.lock:
            if self.raw is None:
                return True
            status = _native.library().ringccl_work_wait(self.raw, ns)
            if status == PENDING:
                raise dist.DistBackendError(f"ringccl: Timed out waiting {limit * 1e3:.0f}ms for a message")
            _native.library().ringccl_work_free(self.raw)
            self.raw = None
            _check(status, "a message")
            if self.flat is not self.tensor:
                with torch.no_grad():
                    self.tensor.copy_(self.flat)
        return True

    def get_future(self):
        self.wait()
        return _Done([self.tensor]).future


class Ring(Backend):
    """One rank of a group."""

    def __init__(self, store, rank, size, timeout, reports):
        super().__init__(rank, size)
        self.ranks, self.own, self.reports = size, rank, reports
        self.comm = _join(store, rank, size, timeout, reports)

    def getBackendName(self):
        return "ringccl"

    def _run(self, call, kind, send, recv, count, reduce=None, peer=0, counts=None, recv_counts=None):
        """One operation to its end; `send` or `recv` says of which type the elements are."""
        if self.comm is None:
            raise dist.DistBackendError("ringccl: this process group was shut down or aborted")
        op, keep = self._op(kind, send, recv, count, reduce, peer, counts, recv_counts)
        _check(_native.library().ringccl_comm_run(self.comm, op), f"{call} on rank {self.own} of {self.ranks}")
        del keep

    def _op(self, kind, send, recv, count, reduce, peer, counts=None, recv_counts=None, tag=0):
        typed = send if send is not None else recv
        code, each = _WIRE.get(typed.dtype, (1, typed.element_size()))
        keep = [_counts([c * each for c in numbers]) if numbers else None for numbers in (counts, recv_counts)]
        op = Op(kind=KINDS[kind], dtype=code, peer=peer, tag=tag, count=count * each)
        op.send = send.data_ptr() if send is not None else None
        op.recv = recv.data_ptr() if recv is not None else None
        if keep[0] is not None:
            op.counts = keep[0]
        if keep[1] is not None:
            op.recv_counts = keep[1]
        if reduce is not None:
            keep.append(self._reduction(op, typed, reduce))
        return op, keep

    @staticmethod
    def _reduction(op, tensor, reduce):
        kind = reduce.op if hasattr(reduce, "op") else reduce
        if kind == _OPS.PREMUL_SUM:
            factor = torch.as_tensor(reduce.factor).to(tensor.dtype)
            op.reduction, op.factor = 5, factor.data_ptr()
            return factor
        codes = _OF_BOOLS if tensor.dtype is torch.bool else _CODES
        integral = not tensor.dtype.is_floating_point and not tensor.dtype.is_complex
        pairs = tensor.dtype.is_complex and kind not in (_OPS.SUM, _OPS.AVG)
        opaque = tensor.dtype not in _WIRE
        if kind not in codes or pairs or opaque or (kind in (_OPS.BAND, _OPS.BOR, _OPS.BXOR) and not integral):
            raise RuntimeError(f"ringccl: {tensor.dtype} tensors have no reduction {kind}")
        op.reduction = codes[kind]
        return None

    @staticmethod
    def _wide(tensor):
        return tensor.to(torch.int32) if tensor.dtype in _WIDENED else _flat(tensor)

    @staticmethod
    def _back(tensor, flat):
        if flat.data_ptr() != tensor.data_ptr() or flat.dtype != tensor.dtype:
            with torch.no_grad():
                tensor.copy_(flat.view(tensor.shape))

    def allreduce(self, tensors, opts):
        for tensor in tensors:
            flat = self._wide(tensor)
            self._run("all_reduce", "all_reduce", flat, flat, flat.numel(), opts.reduceOp)
            self._back(tensor, flat)
        return _Done(tensors)

    allreduce_coalesced = allreduce

    def broadcast(self, tensors, opts):
        for tensor in tensors:
            flat = _flat(tensor)
            self._run("broadcast", "broadcast", flat, flat, flat.numel(), peer=opts.rootRank)
            self._back(tensor, flat)
        return _Done(tensors)

    def reduce(self, tensors, opts):
        for tensor in tensors:
            flat = self._wide(tensor)
            flat = flat.clone() if self.own != opts.rootRank else flat
            self._run("reduce", "reduce", flat, flat, flat.numel(), opts.reduceOp, opts.rootRank)
            if self.own == opts.rootRank:
                self._back(tensor, flat)
        return _Done(tensors)

    def _gathered(self, outputs, source):
        """All ranks' inputs in tensors of any lengths."""
        counts = [output.numel() for output in outputs]
        flat = torch.empty(sum(counts), dtype=source.dtype)
        self._run("all_gather", "all_gather_v", _flat(source), flat, 0, counts=counts)
        for output, part in zip(outputs, flat.split(counts)):
            self._back(output, part)

    def allgather(self, outputs, inputs, opts):
        for one, source in zip(outputs, inputs):
            self._gathered(one, source)
        return _Done(outputs[0])

    def allgather_coalesced(self, outputs, inputs, opts):
        for index, source in enumerate(inputs):
            self._gathered([of_rank[index] for of_rank in outputs], source)
        return _Done(outputs[0])

    def all_gather_single(self, output, source, opts):
        source, flat = _flat(source), output if output.is_contiguous() else torch.empty_like(output).contiguous()
        if flat.numel() != source.numel() * self.ranks:
            raise RuntimeError(f"ringccl: all_gather: {flat.numel()} elements for {self.ranks} of {source.numel()}")
        self._run("all_gather", "all_gather", source, flat, source.numel())
        self._back(output, flat)
        return _Done([output])

    def all_gather_single_coalesced(self, outputs, inputs, opts):
        for output, source in zip(outputs, inputs):
            self.all_gather_single(output, source, opts)
        return _Done(outputs)

    def gather(self, outputs, inputs, opts):
        source = _flat(inputs[0])
        flat = torch.empty(source.numel() * self.ranks, dtype=source.dtype) if self.own == opts.rootRank else None
        self._run("gather", "gather", source, flat, source.numel(), peer=opts.rootRank)
        if flat is not None:
            for output, part in zip(outputs[0], flat.split(source.numel()) if source.numel() else []):
                self._back(output, part)
        return _Done(outputs[0] if outputs else [])

    def scatter(self, outputs, inputs, opts):
        flat = torch.empty(outputs[0].shape, dtype=outputs[0].dtype)
        source = torch.cat([_flat(one).view(-1) for one in inputs[0]]) if self.own == opts.rootRank else None
        self._run("scatter", "scatter", source, flat, flat.numel(), peer=opts.rootRank)
        self._back(outputs[0], flat)
        return _Done(outputs)

    def reduce_scatter(self, outputs, inputs, opts):
        for output, parts in zip(outputs, inputs):
            source = torch.cat([self._wide(part).view(-1) for part in parts])
            flat = torch.empty(output.numel(), dtype=source.dtype)
            counts = [part.numel() for part in parts]
            self._run("reduce_scatter", "reduce_scatter_v", source, flat, 0, opts.reduceOp, counts=counts)
            self._back(output, flat)
        return _Done(outputs)

    def reduce_scatter_single(self, output, source, opts):
        source = self._wide(source)
        flat = torch.empty(output.numel(), dtype=source.dtype)
        if source.numel() != flat.numel() * self.ranks:
            raise RuntimeError(f"ringccl: reduce_scatter: {source.numel()} elements for {self.ranks} of {flat.numel()}")
        self._run("reduce_scatter", "reduce_scatter", source, flat, flat.numel(), opts.reduceOp)
        self._back(output, flat)
        return _Done([output])

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts):
        for output, source in zip(outputs, inputs):
            self.reduce_scatter_single(output, source, opts)
        return _Done(outputs)

    def alltoall(self, outputs, inputs, opts):
        source = torch.cat([_flat(one).view(-1) for one in inputs])
        received = [one.numel() for one in outputs]
        flat = torch.empty(sum(received), dtype=source.dtype)
        sent = [one.numel() for one in inputs]
        self._run("all_to_all", "all_to_all_v", source, flat, 0, counts=sent, recv_counts=received)
        for output, part in zip(outputs, flat.split(received)):
            self._back(output, part)
        return _Done(outputs)

    def all_to_all_single(self, output, source, output_sizes, input_sizes, opts):
        source = _flat(source)
        flat = torch.empty(output.shape, dtype=output.dtype)

        def elements(tensor, sizes):
            rows = tensor.shape[0] if tensor.dim() else 1
            row = tensor.numel() // rows if rows else 0
            return [size * row for size in sizes or [rows // self.ranks] * self.ranks]

        sent, received = elements(source, input_sizes), elements(flat, output_sizes)
        if sum(sent) != source.numel() or sum(received) != flat.numel():
            raise RuntimeError("ringccl: all_to_all: the split sizes do not add up to the rows")
        self._run("all_to_all", "all_to_all_v", source, flat, 0, counts=sent, recv_counts=received)
        self._back(output, flat)
        return _Done([output])

    def _message(self, kind, tensor, peer, tag):
        flat = _flat(tensor)
        source, target = (flat, None) if kind == "send" else (None, flat)
        op, _ = self._op(kind, source, target, flat.numel(), None, peer, tag=tag)
        raw = ctypes.c_void_p()
        status = _native.library().ringccl_comm_start(self.comm, op, 1, None, None, raw)
        _check(status, f"{kind} on rank {self.own} of {self.ranks}")
        return _Message(self, raw, tensor, tensor if flat.data_ptr() == tensor.data_ptr() else flat)

    def send(self, tensors, peer, tag):
        return self._message("send", tensors[0], peer, tag)

    def recv(self, tensors, peer, tag):
        return self._message("recv", tensors[0], peer, tag)

    def recv_anysource(self, tensors, tag):
        return self._message("recv", tensors[0], -1, tag)

    def barrier(self, opts):
        self._run("barrier", "barrier", torch.empty(0), torch.empty(0), 0)
        return _Done([])

    def monitored_barrier(self, opts, wait_all_ranks):
        begun = time.monotonic()
        try:
            self.barrier(opts)
        except dist.DistBackendError as error:
            took = 1e3 * (time.monotonic() - begun)
            text = f"Rank {self.own}: monitoredBarrier failed in {took:.0f} ms: {error}"
            raise dist.DistBackendError(text) from error

    def _leave(self, finalize):
        comm, self.comm = self.comm, None
        if comm is None:
            return
        if finalize:
            _native.library().ringccl_comm_finalize(comm)
        _native.library().ringccl_comm_free(comm)
        if self in _alive:
            _alive.remove(self)

    def shutdown(self):
        self._leave(self.reports)

    def abort(self):
        if self.comm is not None:
            _native.library().ringccl_comm_abort(self.comm)
        self._leave(False)


def make(options, timeout, reports):
    """The backend of a group, as torch's registry calls for it."""
    store = dist.PrefixStore("ringccl/", options.store)
    backend = Ring(store, options.group_rank, options.group_size, timeout, reports)
    _alive.append(backend)
    return backend
