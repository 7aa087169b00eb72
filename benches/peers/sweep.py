#!/usr/bin/env python3
"""Measure many peers interleaved, in short launches, each under the lock and only while the machine is quiet.

  sweep.py OUT.jsonl MINUTES [peer ...]     appends rows; a launch that others disturbed is tried again later.
  Points that OUT has undisturbed are not measured again: give a new OUT for another round.
For the whole picture over hours on a shared machine; compare.py answers one question in minutes.
"""
import fcntl, json, os, signal, sys, time
from run import HOME, PEERS, QUIET, cpu_seconds, measure, op_for

LOCK = os.environ.get("PEERS_LOCK", f"{HOME}/lock")
HOLD = 100  # seconds of the lock at a time
STALL = int(os.environ.get("PEERS_STALL", 45))  # seconds without a row
RANKS = [int(n) for n in os.environ.get("PEERS_RANKS", "8,2,4").split(",")]
K, M = 1 << 10, 1 << 20
OTHERS = ["broadcast", "allgather", "reducescatter", "alltoall", "sendrecv"]
SLOW = {(p, n) for p in ("mpich", "oneccl", "oneccl-yield") for n in (4, 8)}  # 10^3 times slower: a few points only


def groups(peer, ranks):
    """What one launch measures at a time: lists of (op, bytes)."""
    ar = op_for(peer, "allreduce")
    if ranks > 8:
        return [[(ar, s) for s in (8, 64 * K, M)] + [("barrier", 0)]]
    if (peer, ranks) in SLOW:
        return [[(ar, s) for s in (8, 64 * K)] + [("barrier", 0)]]
    return [[(ar, s) for s in (8, K, 64 * K, M)], [(ar, 16 * M), (ar, 64 * M)], [("barrier", 0)] + [
        (op, s) for op in OTHERS for s in (K, M)], [(op, 64 * M) for op in OTHERS], [(ar, 256 * M)]]


def others_now(seconds=0.4):
    a, t = cpu_seconds()[0], time.time()
    time.sleep(seconds)
    return (cpu_seconds()[0] - a) / (time.time() - t)


def done(out):
    """The points that OUT already has, undisturbed."""
    rows = [json.loads(x) for x in open(out)] if os.path.exists(out) else []
    return {(r["peer"], r["ranks"], r["op"], r["bytes"]) for r in rows if r.get("foreign_cpus", 0) <= QUIET}


def main(out, minutes, *peers):
    end, have = time.time() + 60 * float(minutes), done(out)
    todo = [(n, p, g, 0) for g in range(5) for n in RANKS for p in peers or PEERS
            if g < len(groups(p, n)) and not all((p, n, o, b) in have for o, b in groups(p, n)[g])]
    with open(LOCK, "w") as lock, open(out, "a") as f:
        while todo and time.time() < end:
            fcntl.flock(lock, fcntl.LOCK_EX)
            hold, noisy = time.time(), 0
            while todo and time.time() < min(end, hold + HOLD) and noisy < 50:
                if others_now() > QUIET:
                    noisy += 1
                    continue
                n, p, g, tries = todo.pop(0)
                rows = list(measure(p, n, groups(p, n)[g], budget=0.3, stall=STALL))
                worst = max((r.get("foreign_cpus", 0) for r in rows), default=0)
                print(time.strftime("%H:%M:%S"), p, n, g, f"others {worst}", len(todo), "left", flush=True)
                f.writelines(json.dumps(r) + "\n" for r in rows)
                f.flush()
                if worst > QUIET and tries < 3:
                    todo.append((n, p, g, tries + 1))
            fcntl.flock(lock, fcntl.LOCK_UN)
            time.sleep(0.5)
    print("not measured or disturbed:", [(p, n, g) for n, p, g, _ in todo])


if __name__ == "__main__":
    if len(sys.argv) < 3 or not set(sys.argv[3:]) <= set(PEERS):
        sys.exit(__doc__ + "peers: " + " ".join(PEERS))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that ending us ends our launch
    main(*sys.argv[1:])
