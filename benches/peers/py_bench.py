"""The protocol of bench.h for gloo, which users reach from Python (torch.distributed).

python py_bench.py BUDGET_S op:bytes ...   with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT set
FORK=N python py_bench.py ...              imports torch once and forks the N ranks (for many of them)
"""
import json, os, resource, signal, socket, sys, time
import numpy as np


class Gloo:
    """CPU tensors. all_reduce of torch.distributed is in place only."""

    def __init__(self):
        import torch, torch.distributed as dist
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self.t, self.d = torch.from_numpy, dist
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()

    def make(self, op, s, r):
        """The operation as a function of no arguments; None if gloo has none."""
        d = self.d
        if op == "barrier":
            return d.barrier
        s, r = self.t(s), self.t(r)
        if op == "sendrecv":
            def pingpong(other=self.rank ^ 1, first=self.rank % 2 == 0):
                if first: d.send(s, other); d.recv(r, other)
                else: d.recv(r, other); d.send(s, other)
            return pingpong
        return {"allreduce_ip": lambda: d.all_reduce(r),
                "broadcast": lambda: d.broadcast(r, 0),
                "allgather": lambda: d.all_gather_into_tensor(r, s),
                "reducescatter": lambda: d.reduce_scatter_tensor(r, s),
                "alltoall": lambda: d.all_to_all_single(r, s)}.get(op)

    def max(self, v):
        self.d.all_reduce(self.t(v), op=self.d.ReduceOp.MAX)

    def sum(self, x):
        v = np.array([x])
        self.d.all_reduce(self.t(v))
        return float(v[0])


CHUNK = 1 << 18  # floats that fill and verify make at a time


def pattern(rank, lo, hi):
    i = np.arange(lo, hi, dtype=np.uint32)
    return ((i * np.uint32(2654435761) + np.uint32(rank * 2246822519 % 2**32)) >> np.uint32(22)).astype(np.float32)


def fill(a, rank):
    for lo in range(0, len(a), CHUNK):
        a[lo:lo + CHUNK] = pattern(rank, lo, min(lo + CHUNK, len(a)))


def verify(op, me, ranks, n, r):
    total = op.startswith("allreduce") or op == "reducescatter"
    off = me * n if op in ("reducescatter", "alltoall") else 0
    for b in range(len(r) // n):  # block b: from one rank, or the sum of all
        src = 0 if total or op == "broadcast" else me ^ 1 if op == "sendrecv" else b
        for lo in range(0, n, CHUNK):
            hi = min(lo + CHUNK, n)
            want = pattern(src, off + lo, off + hi)
            for k in range(1, ranks if total else 1):
                want += pattern(k, off + lo, off + hi)
            if not np.array_equal(r[b * n + lo:b * n + hi], want):
                return False
    return True


def aligned(n):
    """n zero floats that begin on a page, as bench.h has them."""
    raw = np.zeros(n * 4 + 4096, np.uint8)
    raw[:] = 0  # written, so that no page is first touched in a timed loop
    skip = -raw.ctypes.data % 4096
    return raw[skip:skip + n * 4].view(np.float32)


def cpu_us():
    u = resource.getrusage(resource.RUSAGE_SELF)
    return (u.ru_utime + u.ru_stime) * 1e6


def timed(b, fn, budget):
    """(the slowest rank's us an operation in each sample, CPU us of all ranks an operation, K)"""
    barrier = b.make("barrier", None, None)

    def sample(k):
        barrier()
        t = time.perf_counter()
        for _ in range(k):
            fn()
        return (time.perf_counter() - t) / k * 1e6

    for k in (1, 4, 16, 64, 256, 1024, 4096):
        est = np.array([sample(k)])
        b.max(est)
        if est[0] * k > 20e3:
            break
    K = int(max(1, min(20000, 10e3 / est[0])))
    S = int(max(3, min(101, budget * 1e6 / (est[0] * K))))
    cpu = cpu_us()
    v = np.array([sample(K) for _ in range(S)])
    cpu = b.sum(cpu_us() - cpu) / (S * K)
    b.max(v)
    return np.sort(v), cpu, K


def point(b, op, size, budget):
    R, me = b.ranks, b.rank
    split = op in ("allgather", "reducescatter", "alltoall")
    n = max(1, size // 4 // (R if split else 1))
    ns, nr = (n if op == "allgather" or not split else n * R), (n if op == "reducescatter" or not split else n * R)
    s = aligned(ns)
    r = s if op == "allreduce_ip" else aligned(nr)

    def check():
        if op == "barrier":
            return True
        fill(s, me)
        if r is not s:
            r[:] = s if op == "broadcast" and me == 0 else -1
        fn()
        good = verify(op, me, R, n, r)
        s[:] = 0  # timed on zeros: in-place sums must not grow
        r[:] = 0
        return good

    fn = b.make(op, s, r)
    row = dict(peer=os.environ.get("BENCH_PEER", "gloo"), op=op, ranks=R, bytes=size)
    if fn is None:
        return dict(row, ok=False, note="not offered by this peer")
    signal.alarm(120)  # a hung or pathological point ends this rank, and so the launch
    bad = np.zeros(1)
    bad[0] = not check()
    v, cpu, K = timed(b, fn, budget)
    S = len(v)
    if op == "sendrecv":
        v, cpu = v / 2, cpu / 2  # one way
    bad[0] += not check()
    b.max(bad)
    signal.alarm(0)
    med, f = float(np.median(v)), 2 * (R - 1) / R if op.startswith("allreduce") else (R - 1) / R if split else 1
    alg = size / med / 1e3
    return dict(row, median_us=round(med, 3), algbw_GBs=round(alg, 4), busbw_GBs=round(alg * f, 4), ok=not bad[0],
                min_us=round(float(v[0]), 3), p99_us=round(float(v[(99 * S + 99) // 100 - 1]), 3), cpu_us=round(cpu, 3),
                samples=S, batch=K)


def fork(n):
    """Become n ranks (in the children); the parent waits for them, and ends the rest if one fails."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        os.environ.update(WORLD_SIZE=str(n), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(s.getsockname()[1]))
    left = set()
    for r in range(n):
        os.environ["RANK"] = str(r)
        pid = os.fork()
        if not pid:
            return
        left.add(pid)

    def end(*_):
        for p in left:
            os.kill(p, signal.SIGKILL)
        for p in left:
            os.waitpid(p, 0)
        sys.exit(1)
    signal.signal(signal.SIGTERM, end)
    while left:
        p, status = os.wait()
        left.discard(p)
        if status:
            end()
    sys.exit(0)


if __name__ == "__main__":
    if os.environ.get("FORK"):
        import torch.distributed
        fork(int(os.environ["FORK"]))
    b = Gloo()
    for a in sys.argv[2:]:
        op, size = a.split(":")
        row = point(b, op, int(size), float(sys.argv[1]))
        if b.rank == 0:
            print(json.dumps(row), flush=True)
