#!/usr/bin/env python3
"""Markdown table from the JSON lines of sweep.py, run.py or compare.py:   table.py [--ops a,b] [--peers a,b] [--cpu] FILE.jsonl ...

A cell is the median of the undisturbed launches' medians (us; from 64 KiB up busbw in GB/s behind it); ~ marks one
that had only disturbed launches (the least disturbed is shown), ! a wrong result. --cpu adds "cpu" and the CPU
time of all ranks per operation (us), from the same launches."""
import argparse, json, statistics
from run import IN_PLACE_ONLY, QUIET, size_name

OPS = "allreduce,broadcast,allgather,reducescatter,alltoall,sendrecv,barrier"


def number(x):
    return f"{x:.3g}" if x < 100 else f"{x:.0f}"


def cell(rows, bytes_, ms, cpu):
    """One cell from the rows of all launches of one point and peer."""
    good = [r for r in rows if r.get("median_us")]
    if not good:
        return rows[-1]["note"] if rows else "-"
    used = [r for r in good if r["foreign_cpus"] <= QUIET]
    mark = "" if used else "~"
    used = used or [min(good, key=lambda r: r["foreign_cpus"])]
    us = statistics.median(r["median_us"] for r in used)
    scale = 1000 if ms else 1
    text = mark + number(us / scale)
    if bytes_ >= 1 << 16:
        text += f" ({used[0]['busbw_GBs'] * used[0]['median_us'] / us:.2f})"
    if cpu:
        text += f" cpu {number(statistics.median(r['cpu_us'] for r in used) / scale)}"
    return text + ("" if all(r["ok"] for r in good) else "!")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--ops", default=OPS)
    a.add_argument("--peers")
    a.add_argument("--ms", action="store_true", help="cells in ms")
    a.add_argument("--cpu", action="store_true", help="CPU time beside time")
    a.add_argument("files", nargs="+")
    a = a.parse_args()
    cells = {}
    for r in (json.loads(x) for f in a.files for x in open(f)):
        op = "allreduce" if r["op"] == "allreduce_ip" and r["peer"] in IN_PLACE_ONLY else r["op"]
        cells.setdefault((op, r["ranks"], r["bytes"], r["peer"]), []).append(r)
    peers = a.peers.split(",") if a.peers else list(dict.fromkeys(k[3] for k in cells))
    print("| op | ranks | size | " + " | ".join(peers) + " |\n" + "|---" * (3 + len(peers)) + "|")
    for op in a.ops.split(","):
        for n in sorted({k[1] for k in cells}):
            for b in sorted({k[2] for k in cells if k[0] == op and k[1] == n}):
                row = (cell(cells.get((op, n, b, p), []), b, a.ms, a.cpu) for p in peers)
                print(f"| {op} | {n} | {size_name(b)} | " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
