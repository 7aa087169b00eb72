"""PyTorch's own tests of torch.distributed, which come with torch, run with a backend on the CPU.

    torch_suite.py --backend ringccl --as gloo --ranks 2 --out ours.json
    torch_suite.py --compare gloo.json ours.json

The tests take the backend's name from variables and start their ranks themselves; many run for "gloo" alone, so the
backend is also run under that name. `--compare` lists what passes in the first file and not in the second.
"""

import argparse
import json
import logging
import multiprocessing
import os
import sys
import tempfile
import time
import unittest

# It compares DDP's log with the name that only the built-in backend's enumerator has.
CANNOT_PASS = {"test_ddp_logging_data_cpu"}


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="ringccl")
    parser.add_argument("--as", dest="alias", default="", help="the name that the backend answers to")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--only", action="append", default=[], help="tests whose names contain this")
    parser.add_argument("--budget", type=float, default=3000, help="seconds after which no test is begun")
    parser.add_argument("--limit", type=int, default=60, help="seconds that one test may take")
    parser.add_argument("--out", help="a file for the results")
    parser.add_argument("--compare", nargs=2, metavar="FILE")
    return parser.parse_args()


def suite(args):
    """The class of the tests, for this backend. Variables must be set before the tests are imported."""
    name = args.alias or args.backend
    folder = tempfile.mkdtemp(prefix="ringccl-suite-")
    os.environ.update(WORLD_SIZE=str(args.ranks), BACKEND=name, TEMP_DIR=folder, OMP_NUM_THREADS="1")
    os.environ["INIT_METHOD"] = f"file://{folder}/init"
    if args.alias:
        os.environ["RINGCCL_AS"] = args.alias
    import torch.testing._internal.common_distributed as common

    if args.backend != "gloo":
        for feature in ("plugin", "ddp", "subgroup"):
            common.DistTestCases.backend_feature[feature].add(args.backend)
    common.TIMEOUT_DEFAULT = args.limit
    common.TIMEOUT_OVERRIDE.clear()
    import torch.testing._internal.distributed.distributed_test as tests

    for profiled in (tests.PROFILING_SUPPORTED_BACKENDS, tests.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
        profiled.append(args.backend)
    logging.disable(logging.ERROR)

    class Suite(tests.TestDistBackend, tests.DistributedTest._DistTestBase):
        """The tests, whose ranks are forked: importing torch for each would take seconds."""

        def setUp(self):
            super().setUp()
            self._start_processes(multiprocessing.get_context("fork").Process)

    return Suite


def run_one(cls, name):
    """Result and text of one test."""
    result = unittest.TestResult()
    cls.setUpClass()
    try:
        cls(name).run(result)
    finally:
        cls.tearDownClass()
    if result.skipped:
        return "skipped", result.skipped[0][1]
    problems = result.errors + result.failures
    return ("failed", problems[0][1]) if problems else ("passed", "")


def run(args):
    cls = suite(args)
    names = sorted(name for name in dir(cls) if name.startswith("test_"))
    if args.only:
        names = [name for name in names if any(word in name for word in args.only)]
    results, begun = {}, time.monotonic()
    for name in names:
        if time.monotonic() - begun > args.budget:
            results[name] = ["not run", "the budget was used up"]
            continue
        results[name] = run_one(cls, name)
        if results[name][0] == "failed":
            print(f"{name}: failed\n{results[name][1][-3000:]}", flush=True)
    counts = {}
    for outcome, _ in results.values():
        counts[outcome] = counts.get(outcome, 0) + 1
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    label = args.backend + (f" as {args.alias}" if args.alias else "")
    print(f"{label}, {args.ranks} ranks: {counts} in {time.monotonic() - begun:.0f} s")
    failed = {name for name, (outcome, _) in results.items() if outcome == "failed"} - CANNOT_PASS
    return 1 if failed else 0


def compare(paths):
    theirs, ours = (json.load(open(path, encoding="utf-8")) for path in paths)
    passed = [name for name, (outcome, _) in theirs.items() if outcome == "passed"]
    lost = [name for name in passed if ours.get(name, ["missing"])[0] != "passed" and name not in CANNOT_PASS]
    for name in lost:
        print(f"{name}: passes in {paths[0]}, {ours.get(name, ['missing'])[0]} in {paths[1]}")
    print(f"{len(passed)} pass in {paths[0]}; of these {len(passed) - len(lost)} in {paths[1]} or known not to")
    return 1 if lost else 0


if __name__ == "__main__":
    ARGS = options()
    sys.exit(compare(ARGS.compare) if ARGS.compare else run(ARGS))
