#!/usr/bin/env python3
"""RingCCL against chosen peers in one interleaved run; a table of paired ratios, or the verdict on the targets.

  compare.py [--peers gloo,impi,...] [--ops allreduce] [--ranks 2,4,8] [--sizes 8,...] [--rounds 5]
             [--out rows.jsonl] [--csv benches/record/MACHINE/DATE.csv] [--targets | --named]

A round launches every library once, briefly, on the same few points, one right after the other, and every other
round in the opposite order: what slows the machine for a while slows both sides of a pair. A ratio is ours / peer of
the same round (below 1: we are faster); a cell has the median of the rounds' ratios, their min..max, and the peer's
time and CPU time per operation of all ranks. Peers without an out-of-place all-reduce (gloo) are measured in place.
~ marks points during which other programs took CPU time, ! wrong results: neither proves anything.

--targets prints for each point whether the project's targets hold, and exits with 1 if any does not.

--named measures the named points instead of ops x ranks x sizes (what `cargo xtask bench --peers` does), and prints
for each which peer is fastest and where we lose, the geometric mean, and whether the targets of large and of
registered buffers hold; exits with 1 if we lose anywhere.
"""
import argparse, csv, json, math, os, signal, statistics, subprocess, sys, time
from run import CPUS, HERE, PEERS, QUIET, measure, missing, op_for, points_of, size_name

RIVALS = "gloo,openmpi,mpich-tuned,impi,oneccl"
FIELDS = "date machine cores kernel compiler commit peer op ranks bytes median_us p99_us cpu_us ok".split()


K64, M1, M64 = 64 << 10, 1 << 20, 64 << 20
# Time at 64 MiB / Intel MPI's, at most: {(op, ranks): limit}; of registered buffers / Intel MPI's on private ones.
LARGE = {("allreduce", 2): 0.6, ("allreduce", 4): 0.6, ("allreduce", 8): 0.6, ("allgather", 8): 0.45,
         ("reducescatter", 8): 0.55, ("alltoall", 8): 0.85, ("broadcast", 8): 0.9, ("sendrecv", 2): 0.9}
REGISTERED = {"impi": 0.4, "ringccl": 0.6}


def named_points(n):
    """The named points of n ranks: what programs do most, at the sizes where something else decides each time."""
    out = [("allreduce", b) for b in (8, K64, M1, M64)] + [("barrier", 0)]
    if n == 2:
        out += [("sendrecv", b) for b in (8, K64, M1, M64)]
    if n != 4:
        out += [(op, b) for op in ("allgather", "reducescatter", "alltoall", "broadcast") for b in (8, K64, M1, M64)]
    return out


class Points(dict):
    """{(op, ranks, bytes): {peer: [row or None of each round]}}; op is the one asked for, not a peer's stand-in."""

    def add(self, round_, peer, op, row):
        rows = self.setdefault((op, row["ranks"], row["bytes"]), {}).setdefault(peer, [])
        rows += [None] * (round_ - len(rows)) + [row]

    def good(self, key, peer):
        return [r for r in self.get(key, {}).get(peer, []) if r and r.get("median_us")]

    def median(self, key, peer, field):
        values = [r[field] for r in self.good(key, peer)]
        return statistics.median(values) if values else None

    def ratios(self, key, ours, peer):
        """Sorted ours / peer of the rounds that measured both."""
        pairs = zip(self.get(key, {}).get(ours, []), self.get(key, {}).get(peer, []))
        return sorted(a["median_us"] / b["median_us"] for a, b in pairs
                      if a and b and a.get("median_us") and b.get("median_us"))

    def wrong(self, key, peer):
        return any(not r["ok"] for r in self.good(key, peer))

    def noisy(self, key):
        """Did other programs take CPU time in most rounds of some library here?"""
        return any(statistics.median(f) > QUIET for peer in self.get(key, {})
                   if (f := [r.get("foreign_cpus", 0) for r in self.good(key, peer)]))


def run(points, a, out):
    """Measures all rounds into `points`, each row also written to `out`."""
    skip = set()  # (peer, ranks, op, bytes) not worth another round
    for round_ in range(a.rounds):
        for n in a.ranks:
            asked = named_points(n) if a.named else points_of(a.ops, a.sizes)
            for group in [asked[i:i + a.per_launch] for i in range(0, len(asked), a.per_launch)]:
                for peer in a.all if round_ % 2 == 0 else a.all[::-1]:
                    todo = [p for p in group if (peer, n, *p) not in skip]
                    stand_in = [(op_for(peer, op), b) for op, b in todo]
                    for (op, b), row in zip(todo, measure(peer, n, stand_in, a.budget, a.stall)):
                        row = dict(row, bytes=b)  # a peer may round up to whole floats
                        points.add(round_, peer, op, row)
                        out.write(json.dumps(dict(row, round=round_)) + "\n")
                        if not row.get("median_us") or peer != a.ours and row["median_us"] > a.skip_over * 1e6:
                            skip.add((peer, n, op, b))
                            note = row.get("note") or f"{row['median_us'] / 1e6:.1f} s an operation, not repeated"
                            print(f"{peer}, {n} ranks, {op} {size_name(b)}: {note}", file=sys.stderr)
                    out.flush()
        print(f"{time.strftime('%H:%M:%S')} round {round_ + 1} of {a.rounds} done", file=sys.stderr, flush=True)


def number(x):
    return "-" if x is None else f"{x:.3g}" if x < 100 else f"{x:.0f}"


def cell(points, key, ours, peer):
    r = points.ratios(key, ours, peer)
    time_, cpu = points.median(key, peer, "median_us"), points.median(key, peer, "cpu_us")
    if not r:
        return "-" if time_ is None else f"{number(time_)}, cpu {number(cpu)}"
    ratio = f"**{number(statistics.median(r))}** ({number(r[0])}..{number(r[-1])})"
    return f"{ratio} {number(time_)}, cpu {number(cpu)}" + "!" * points.wrong(key, peer)


def table(points, ours, rivals):
    """Markdown lines: one per point."""
    yield f"| op | ranks | size | {ours} us, cpu us | " + " | ".join(f"{ours} / {p}, us, cpu us" for p in rivals) + " |"
    yield "|---" * (4 + len(rivals)) + "|"
    for key in sorted(points):
        op, n, b = key
        mine = ("~" * points.noisy(key) + f"{number(points.median(key, ours, 'median_us'))}, "
                f"cpu {number(points.median(key, ours, 'cpu_us'))}" + "!" * points.wrong(key, ours))
        over = " *" if n > CPUS else ""  # more ranks than cores
        yield f"| {op} | {n}{over} | {size_name(b)} | {mine} | " + " | ".join(
            cell(points, key, ours, p) for p in rivals) + " |"
    yield f"\n* more ranks than this machine's {CPUS} cores."


def targets(points, key, ours, rivals):
    """[(what must hold, what was measured, holds)] of one all-reduce point."""
    _, n, b = key
    out = []
    at_most = {2: 0.35, 8: 8.0}.get(n) if b == 8 else None
    mine = points.median(key, ours, "median_us")
    if at_most:
        out.append((f"at most {at_most} us", f"{number(mine)} us", mine is not None and mine <= at_most))
    r = points.ratios(key, ours, "gloo")
    times, fast = (4, "8 B..1 MiB") if b <= 1 << 20 else (2, "above 1 MiB")
    speed = 1 / statistics.median(r) if r else 0
    out.append((f"{times}x as fast as gloo ({fast})", f"{speed:.1f}x" if r else "not measured", speed >= times))
    if b >= 64 << 10:
        found = {p: statistics.median(r) for p in rivals if (r := points.ratios(key, ours, p))}
        best = max(found, key=found.get, default=None)
        worst = found.get(best)
        got = f"{worst:.2f} of {best}" if best else "not measured"
        if lacks := [p for p in rivals if p not in found]:
            got += f", without {', '.join(lacks)}"
        out.append(("at most 1.3 times the best peer's time", got, bool(worst) and worst <= 1.3))
    if points.wrong(key, ours):
        out.append(("right results", "wrong", False))
    return out


def verdict(points, ours, rivals):
    """Prints every target of every all-reduce point; True if all hold."""
    kept, total = 0, 0
    print("| ranks | size | target | measured | |\n|---|---|---|---|---|")
    for key in sorted(k for k in points if k[0] == "allreduce" and k[1] in (2, 4, 8)):
        noise = " (~ disturbed)" * points.noisy(key)
        for what, got, holds in targets(points, key, ours, rivals):
            print(f"| {key[1]} | {size_name(key[2])} | {what} | {got}{noise} | {'holds' if holds else 'FAILS'} |")
            kept, total = kept + holds, total + 1
    print(f"\n{kept} of {total} hold")
    return total > 0 and kept == total


def named(points, ours, rivals):
    """Prints who is fastest at each named point and what follows from it; True if we are everywhere."""
    lost, large = [], []
    print("| op | ranks | size | best peer | ours / best | spread |\n|---|---|---|---|---|---|")
    for key in sorted(points):
        op, n, b = key
        found = {p: r for p in rivals if p != "ringccl-registered" and (r := points.ratios(key, ours, p))}
        if not found:
            lost.append(f"{op} {size_name(b)} at {n} ranks: nothing measured")
            continue
        best = max(found, key=lambda p: statistics.median(found[p]))
        ratio = statistics.median(found[best])
        if ratio >= 1 or points.wrong(key, ours):
            why = "wrong results" if points.wrong(key, ours) else f"{ratio:.2f} of {best}"
            lost.append(f"{op} {size_name(b)} at {n} ranks: {why}")
        if b >= K64:
            large.append(ratio)
        print(f"| {op} | {n} | {size_name(b)} | {best} | {ratio:.2f} | {found[best][0]:.2f}..{found[best][-1]:.2f} |"
              + " disturbed" * points.noisy(key))
    mean = math.exp(-statistics.fmean(map(math.log, large))) if large else 0
    print(f"\ngeometric mean of best peer's time / ours from 64 KiB up: {mean:.2f} (target 1.5)")
    for (op, n), limit in LARGE.items():
        if r := points.ratios((op, n, M64), ours, "impi"):
            held = "holds" if (got := statistics.median(r)) <= limit else "FAILS"
            print(f"{op} 64 MiB at {n} ranks, of Intel MPI's time: {got:.2f} (at most {limit}) {held}")
    for n in (2, 4, 8):
        for other, limit in REGISTERED.items():
            if r := points.ratios(("allreduce", n, M64), "ringccl-registered", other):
                held = "holds" if (got := statistics.median(r)) <= limit else "FAILS"
                print(f"allreduce 64 MiB at {n} ranks on registered memory, of {other}'s time: {got:.2f} "
                      f"(at most {limit}) {held}")
    print(f"\nslower than a peer, or not shown to be faster, at {len(lost)} of {len(points)} points")
    print(*(f"- {text}" for text in lost), sep="\n")
    return not lost


def said(*cmd):
    """First line that a command prints; empty if it cannot."""
    try:
        return (subprocess.run(cmd, cwd=HERE, capture_output=True, text=True).stdout.splitlines() or [""])[0]
    except OSError:
        return ""


def write_csv(path, points):
    """One line per point and peer: medians over the rounds."""
    with open("/proc/cpuinfo") as f:
        model = next((x.split(":", 1)[1].strip() for x in f if x.startswith("model name")), os.uname().machine)
    compiler = "; ".join(filter(None, (said("rustc", "--version"), said("gcc", "--version"))))
    commit = said("git", "rev-parse", "--short=12", "HEAD") + "-dirty" * bool(said("git", "status", "--porcelain"))
    same = dict(date=time.strftime("%Y-%m-%d"), machine=model, cores=CPUS, kernel=os.uname().release,
                compiler=compiler, commit=commit)
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    new = not os.path.exists(path)
    with open(path, "a", newline="") as f:
        w = csv.DictWriter(f, FIELDS, lineterminator="\n")
        if new:
            w.writeheader()
        for key in sorted(points):
            for peer in points[key]:
                good = points.good(key, peer)
                if good:
                    figures = {x: round(points.median(key, peer, x), 3) for x in ("median_us", "p99_us", "cpu_us")}
                    w.writerow(dict(same, peer=peer, op=good[0]["op"], ranks=key[1], bytes=key[2], **figures,
                                    ok=str(not points.wrong(key, peer)).lower()))


def arguments():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--ours", default="ringccl", choices=PEERS, help="whose ratios are shown")
    a.add_argument("--peers", default=RIVALS, help=f"of {', '.join(PEERS)}")
    a.add_argument("--ops", default="allreduce")
    a.add_argument("--ranks", default="2,4,8")
    a.add_argument("--sizes", default="8,1K,16K,64K,256K,1M,4M,16M,64M")
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--per-launch", type=int, default=3, help="points a launch measures")
    a.add_argument("--budget", type=float, default=0.3, help="seconds of timed loop a point")
    a.add_argument("--stall", type=float, default=60, help="seconds without a row that end a launch")
    a.add_argument("--skip-over", type=float, default=2.0, help="seconds an operation: a rival slower than this is measured once")
    a.add_argument("--out", default=os.devnull, help="append the raw rows here, as JSON lines")
    a.add_argument("--csv", help="append the medians here")
    a.add_argument("--targets", action="store_true", help="say which targets hold")
    a.add_argument("--named", action="store_true", help="measure the named points, and say where we lose")
    a = a.parse_args()
    a.rivals = [p for p in a.peers.split(",") if p != a.ours]
    if unknown := set(a.rivals) - set(PEERS):
        sys.exit(f"no such peer: {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    a.all = [a.ours, *a.rivals]
    if lacks := list(filter(None, map(missing, a.all))):
        sys.exit("\n".join(lacks))
    a.ranks = [int(n) for n in a.ranks.split(",")]
    return a


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that ending us ends our launch
    a, points = arguments(), Points()
    with open(a.out, "a") as out:
        run(points, a, out)
    print(*table(points, a.ours, a.rivals), sep="\n")
    if a.csv:
        write_csv(a.csv, points)
    if a.named:
        print()
        sys.exit(not named(points, a.ours, a.rivals))
    if a.targets:
        print()
        sys.exit(not verdict(points, a.ours, a.rivals))


if __name__ == "__main__":
    main()
