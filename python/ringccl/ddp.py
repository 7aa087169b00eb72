"""DistributedDataParallel: what its buckets do, gradients in fewer bits, and buckets that collectives read in place.

    model = DistributedDataParallel(net)
    ringccl.ddp.observe(model)           # records buckets; with RINGCCL_REPORT, also into a file beside the report
    ringccl.ddp.compress(model)          # or: gradients travel as bfloat16
    ringccl.ddp.share_buckets(model)     # or: buckets move to shared memory, so that nothing is copied

One model takes one of the three; each takes the others' work as options.
"""

import atexit
import json
import os
import time

import torch
import torch.distributed as dist


class Record:
    """What buckets did: for each step and bucket its index, bytes, and when it was ready and reduced, in seconds since
    the step's first bucket."""

    def __init__(self, group):
        self.group, self.steps, self._begun = group, [], None

    def ready(self, bucket, tensor):
        """Notes that a bucket is ready; its entry."""
        now = time.perf_counter()
        if bucket.index() == 0 or self._begun is None:
            self._begun = now
            self.steps.append([])
        count = len(bucket.parameters())
        entry = {"bucket": bucket.index(), "bytes": tensor.nbytes, "parameters": count, "ready_s": now - self._begun}
        self.steps[-1].append(entry)
        begun = self._begun

        def reduced():
            entry["reduced_s"] = time.perf_counter() - begun

        return reduced

    def summary(self):
        """Means over all steps but the first, after which torch orders the buckets anew."""
        by_bucket = {}
        for step in self.steps[1:] or self.steps:
            for entry in step:
                by_bucket.setdefault(entry["bucket"], []).append(entry)

        def mean(entries, key):
            known = [entry[key] for entry in entries if key in entry]
            return sum(known) / len(known) if known else None

        return [
            {"bucket": index, "bytes": entries[-1]["bytes"], "parameters": entries[-1]["parameters"],
             "ready_ms": 1e3 * mean(entries, "ready_s"), "reduced_ms": 1e3 * (mean(entries, "reduced_s") or 0.0)}
            for index, entries in sorted(by_bucket.items())
        ]  # fmt: skip

    def write(self, path):
        """Writes summary and steps as JSON."""
        about = {"schema": "ringccl_ddp.v1", "rank": self.rank, "ranks": self.ranks, "steps": len(self.steps)}
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**about, "buckets": self.summary(), "timeline": self.steps[-100:]}, file, indent=1)


def _report_folder():
    place = os.environ.get("RINGCCL_REPORT")
    if not place:
        return None
    return place if os.path.isdir(place) else os.path.dirname(os.path.abspath(place))


def _record(model):
    group = model.process_group
    record = Record(group)
    record.rank, record.ranks = dist.get_rank(group), dist.get_world_size(group)
    folder = _report_folder()
    if folder:
        atexit.register(lambda: record.steps and record.write(os.path.join(folder, f"ddp_rank{record.rank}.json")))
    return record


def _hook(model, *, record=None, narrow=None, share=False):
    """The communication hook with what is asked for."""
    group = model.process_group
    seen = {}

    def hook(_, bucket):
        buffer = bucket.buffer()
        if share and narrow is None:
            _share(buffer, bucket, seen, group)
        reduced = record.ready(bucket, buffer) if record else None
        sent = buffer.to(narrow) if narrow else buffer
        future = dist.all_reduce(sent, dist.ReduceOp.AVG, group=group, async_op=True).get_future()

        def finish(done):
            result = done.value()[0]
            if reduced:
                reduced()
            return buffer.copy_(result) if narrow else result

        return future.then(finish)

    return hook


def _share(buffer, bucket, seen, group):
    """Moves a bucket to shared memory the second time it comes: torch lays buckets out anew after the first step."""
    from . import torch as backend

    key = bucket.index()
    seen[key] = seen.get(key, 0) + 1
    # Every rank counts the same calls, so all register the same buckets at the same time.
    if seen[key] == 2 and backend.info()["form"] == "shim":
        backend.share(buffer, group)


def observe(model, share=False):
    """Records the buckets of a DistributedDataParallel model; the record. `share` as in `share_buckets`."""
    record = _record(model)
    model.register_comm_hook(None, _hook(model, record=record, share=share))
    return record


def compress(model, dtype=torch.bfloat16, observed=False):
    """Has gradients travel in another type, half as many bytes as float32 by default. `observed`: returns a record."""
    record = _record(model) if observed else None
    model.register_comm_hook(None, _hook(model, record=record, narrow=dtype))
    return record


def share_buckets(model):
    """Moves the buckets to memory that the other ranks read in place, after the first step. Gradients that are views of
    them (`gradient_as_bucket_view=True`) move along; numpy arrays that were made of these before do not."""
    model.register_comm_hook(None, _hook(model, share=True))
