#!/usr/bin/env python3
"""Measure ONE peer; print JSON lines {peer, op, ranks, bytes, median_us, p99_us, cpu_us, ok, ...} (bench.h says what they are).

  run.py openmpi --ops allreduce,broadcast --ranks 2,8 --sizes 8,1K,64M [--budget 1]

A launch that prints nothing for --stall seconds is ended, its point noted as "timeout", and the rest
go on in a new launch. foreign_cpus is how many CPUs other programs took meanwhile. To add a peer: one
entry in PEERS (a command that takes `BUDGET_S op:bytes ...` after it and prints the JSON lines on rank 0).
"""
import argparse, json, os, resource, select, signal, subprocess, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))
HOME = os.environ.get("PEERS_HOME", os.path.expanduser("~/.cache/ringccl-peers"))  # what setup.sh made
RINGCCL = os.environ.get("RINGCCL_BIN", os.path.normpath(f"{HERE}/../../target/release"))  # ringccl and ringccl-peer
CPUS = len(os.sched_getaffinity(0))
QUIET = 0.10  # foreign_cpus above this: noise

v = lambda name: f"{HOME}/v-{name}"
built = lambda name: f"{HOME}/build/{name}"


def ompi(n, *extra):
    over = ["--oversubscribe", "--bind-to", "none"] if n > CPUS else ["--bind-to", "core"]
    return [f"{v('ompi')}/bin/mpirun", "--allow-run-as-root", *over, *extra, "-n", str(n), built("ompi")]


def mpich(n):
    bind = ["-bind-to", "core"] if n <= CPUS else []
    return [f"{v('mpich')}/bin/mpiexec", *bind, "-n", str(n), built("mpich")]


def hydra(n, prog):
    return [f"{v('impi')}/bin/mpiexec.hydra", "-n", str(n), built(prog)]


def gloo(n):
    """Up to 8 ranks: n processes, as torchrun would; more: one torch import, then n forks."""
    cmd = [f"{v('torch')}/bin/python", f"{HERE}/py_bench.py"]
    return [sys.executable, f"{HERE}/spawn.py", str(n), *cmd] if n <= 8 else ["env", f"FORK={n}", *cmd]


def ringccl(n):
    """Bound to cores where the MPIs are: when there is one for each rank."""
    bind = ["--bind", "even"] if n <= os.cpu_count() else []
    return [f"{RINGCCL}/ringccl", "run", "-n", str(n), *bind, "--", f"{RINGCCL}/ringccl-peer"]


IMPI = dict(PATH=f"{v('impi')}/bin:" + os.environ["PATH"], LD_LIBRARY_PATH=f"{v('impi')}/lib", I_MPI_ROOT=v("impi"),
            I_MPI_FABRICS="shm")
CCL = dict(IMPI, LD_LIBRARY_PATH=f"{v('impi')}/lib:{v('ccl')}/lib", CCL_ROOT=v("ccl"), CCL_LOG_LEVEL="error")
PEERS = {  # name: (command of n ranks, environment)
    "ringccl": (ringccl, {}),
    "ringccl-registered": (ringccl, dict(BENCH_MEMORY="registered")),  # buffers in registered memory: zero copy
    "gloo": (gloo, dict(GLOO_SOCKET_IFNAME="lo")),
    "openmpi": (ompi, {}),
    "openmpi-yield": (lambda n: ompi(n, "--mca", "mpi_yield_when_idle", "1"), {}),
    "mpich": (mpich, {}),
    # without the shared-memory collectives that take milliseconds once ranks exceed cores
    "mpich-tuned": (mpich, dict(MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD="2000000000", MPIR_CVAR_CH4_CMA_ENABLE="1")),
    "impi": (lambda n: hydra(n, "impi"), IMPI),
    "oneccl": (lambda n: hydra(n, "ccl"), CCL),
    "oneccl-yield": (lambda n: hydra(n, "ccl"), dict(CCL, CCL_YIELD="sched_yield", CCL_SPIN_COUNT="1")),
}
IN_PLACE_ONLY = {"gloo"}  # peers that offer no out-of-place all-reduce


def op_for(peer, op):
    """The operation that stands for `op` on this peer."""
    return "allreduce_ip" if op == "allreduce" and peer in IN_PLACE_ONLY else op


def size(s):
    return int(s[:-1]) << {"K": 10, "M": 20, "G": 30}[s[-1]] if s[-1] in "KMG" else int(s)


def size_name(b):
    return f"{b >> 20} MiB" if b >= 1 << 20 else f"{b >> 10} KiB" if b >= 1 << 10 else f"{b} B" if b else "-"


def cpu_seconds():
    """(busy CPU seconds of the whole machine, those of our ended children)"""
    with open("/proc/stat") as f:
        x = list(map(int, f.readline().split()[1:9]))
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (sum(x) - x[3] - x[4]) / os.sysconf("SC_CLK_TCK"), r.ru_utime + r.ru_stime


def missing(peer):
    """What is not installed, and the remedy; None if the peer can start."""
    program = PEERS[peer][0](2)
    lacks = [f for f in program if f.startswith("/") and not os.path.exists(f)]
    if lacks:
        remedy = "cargo build --release, or set RINGCCL_BIN" if peer.startswith("ringccl") else "setup.sh installs the peers"
        return f"{peer}: {lacks[0]} is not there: {remedy}"


def row_of(line):
    """The row in one line of output: a launcher may put its rank before it. None if there is none."""
    text = line.decode(errors="replace")
    at = text.find('{"peer"')
    try:
        return json.JSONDecoder().raw_decode(text, at)[0] if at >= 0 else None
    except ValueError:
        return None


def launch(peer, n, points, budget, stall):
    """One launch over the points: (rows, what went wrong or None)."""
    if lacks := missing(peer):
        return [], lacks
    cmd, env = PEERS[peer]
    env = dict(os.environ, OMP_NUM_THREADS="1", BENCH_PEER=peer, **env)
    t, (all0, ours0) = time.time(), cpu_seconds()
    p = subprocess.Popen([*cmd(n), str(budget), *(f"{o}:{b}" for o, b in points)], env=env, stdout=subprocess.PIPE,
                         stdin=subprocess.DEVNULL, start_new_session=True)
    rows, wrong, buf = [], None, b""
    try:
        while True:
            if not select.select([p.stdout], [], [], stall)[0]:
                wrong = "timeout"
                break
            got = os.read(p.stdout.fileno(), 65536)
            if not got:
                p.wait()
                wrong = f"exit {p.returncode}" if p.returncode else None
                break
            *lines, buf = (buf + got).split(b"\n")
            rows += filter(None, map(row_of, lines))
    finally:
        if p.poll() is None:
            os.killpg(p.pid, signal.SIGTERM)  # the launchers end their ranks on it
            try:
                p.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(p.pid, signal.SIGKILL)
                p.wait()
        p.stdout.close()
    all1, ours1 = cpu_seconds()
    foreign = max(0, (all1 - all0 - (ours1 - ours0)) / (time.time() - t))
    for row in rows:
        row["foreign_cpus"] = round(foreign, 2)  # other programs' CPU use meanwhile: a point with much is noisy
    return rows, wrong


def measure(peer, n, points, budget=1.0, stall=60):
    """Rows of all the points, in as many launches as failures make necessary."""
    points = list(points)
    while points:
        rows, wrong = launch(peer, n, points, budget, stall)
        yield from rows
        points = points[len(rows):]
        if points:
            op, b = points.pop(0)
            yield dict(peer=peer, op=op, ranks=n, bytes=b, ok=False, note=wrong or "printed nothing")
            if not rows and wrong != "timeout":
                return


def points_of(ops, sizes):
    """[(op, bytes)] of two comma lists; a barrier has no size."""
    return [(op, s) for op in ops.split(",") for s in ([0] if op == "barrier" else map(size, sizes.split(",")))]


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("peer", choices=PEERS)
    a.add_argument("--ops", default="allreduce")
    a.add_argument("--ranks", default="2,4,8")
    a.add_argument("--sizes", default="8,1K,64K,1M,16M,64M,256M")
    a.add_argument("--budget", type=float, default=1.0, help="seconds of timed loop a point")
    a.add_argument("--stall", type=float, default=60, help="seconds without a row that end a launch")
    a = a.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that ending us ends our launch
    for n in map(int, a.ranks.split(",")):
        points = [(op_for(a.peer, op), s) for op, s in points_of(a.ops, a.sizes)]
        for row in measure(a.peer, n, points, a.budget, a.stall):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
