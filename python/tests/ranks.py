"""Runs a function as the ranks of a job: forked processes, a store in a file, a deadline for all of it."""

import multiprocessing
import os
import tempfile
import time
import traceback

import torch
import torch.distributed as dist

LIMIT_S = 60.0


def _rank(function, rank, ranks, backend, path, timeout_s, answers, arguments):
    try:
        torch.set_num_threads(1)
        store = dist.FileStore(path, ranks)
        if backend is not None:
            from datetime import timedelta

            timeout = timedelta(seconds=timeout_s)
            dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=timeout)
        answer = function(rank, ranks, *arguments)
        if dist.is_initialized():
            dist.destroy_process_group()
        answers.put((rank, None, answer))
    except BaseException:
        answers.put((rank, traceback.format_exc(), None))


def run(function, ranks, *arguments, backend="ringccl", timeout_s=20.0, missing=()):
    """What `function(rank, ranks, *arguments)` returns on each rank. Raises what a rank raised.

    Ranks in `missing` may end without an answer: theirs is None.
    """
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "store")
        common = (ranks, backend, path, timeout_s, answers, arguments)
        all_ranks = [context.Process(target=_rank, args=(function, rank, *common)) for rank in range(ranks)]
        for process in all_ranks:
            process.start()
        results, until = {}, time.monotonic() + LIMIT_S
        try:
            while len(results) < ranks - len(missing):
                rank, error, answer = answers.get(timeout=max(until - time.monotonic(), 0.01))
                if error is not None:
                    raise AssertionError(f"rank {rank} of {ranks}:\n{error}")
                results[rank] = answer
        finally:
            for process in all_ranks:
                process.join(timeout=5 if len(results) == ranks else 0.2)
                if process.is_alive():
                    process.kill()
                    process.join()
    return [results.get(rank) for rank in range(ranks)]
