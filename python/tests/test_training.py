"""Training: data parallel, sharded and tensor parallel models give what one process gives, on every rank and run."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ranks

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "pytorch")


def network():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(20, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 5))


def batches(steps, rows):
    generator = torch.Generator().manual_seed(6)
    for _ in range(steps):
        yield torch.randn(rows, 20, generator=generator), torch.randn(rows, 5, generator=generator)


def train(model, data, rank=0, size=1):
    """The parameters after some steps on this rank's rows of each batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for inputs, targets in data:
        optimizer.zero_grad()
        rows = slice(rank * len(inputs) // size, (rank + 1) * len(inputs) // size)
        (model(inputs[rows]) - targets[rows]).square().mean().backward()
        optimizer.step()
    return torch.cat([parameter.detach().view(-1) for parameter in model.parameters()])


def by_ddp(rank, n, how):
    import ringccl.ddp as ours

    model = DistributedDataParallel(network(), bucket_cap_mb=0.1, gradient_as_bucket_view=how == "share")
    if how == "share":
        ours.share_buckets(model)
    elif how == "observe":
        record = ours.observe(model)
    elif how == "compress":
        ours.compress(model)
    elif how == "builtin":
        model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    parameters = train(model, batches(8, 16), rank, n)
    if how == "observe":
        summary = record.summary()
        assert len(record.steps) == 8 and len(summary) >= 2, summary
        assert sum(one["bytes"] for one in summary) == 4 * parameters.numel()
        assert all(one["reduced_ms"] >= one["ready_ms"] >= 0 for one in summary)
    return parameters.numpy().tobytes()


def by_fsdp(rank, n, allocate):
    from torch.distributed.fsdp import fully_shard

    model = network()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    if allocate:
        model.set_allocate_memory_from_process_group_for_comm(True)
    train_sharded = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for inputs, targets in batches(8, 16):
        train_sharded.zero_grad()
        rows = slice(rank * 16 // n, (rank + 1) * 16 // n)
        (model(inputs[rows]) - targets[rows]).square().mean().backward()
        train_sharded.step()
    return torch.cat([parameter.full_tensor().detach().view(-1) for parameter in model.parameters()]).numpy().tobytes()


def as_tensor(data):
    return torch.frombuffer(bytearray(data), dtype=torch.float32)


class Training(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)

    def expected(self):
        return train(network(), batches(8, 16))

    def test_ddp_is_training_on_the_whole_batch(self):
        """On 2, 4 and 8 ranks DDP gives the parameters of one process on the whole batch, to float tolerance; the same
        bits on every rank, and in every run."""
        expected = self.expected()
        for n in (2, 4, 8):
            runs = [ranks.run(by_ddp, n, how) for how in ("plain", "plain")]
            self.assertEqual(len(set(runs[0] + runs[1])), 1, f"{n} ranks")
            torch.testing.assert_close(as_tensor(runs[0][0]), expected, rtol=1e-4, atol=1e-5)

    def test_hooks(self):
        """Observed, shared and built-in hooks change nothing; fewer bits change little."""
        expected = self.expected()
        for how in ("observe", "share", "builtin", "compress"):
            found = ranks.run(by_ddp, 2, how)
            self.assertEqual(len(set(found)), 1, how)
            tolerance = {"rtol": 0.05, "atol": 0.02} if how == "compress" else {"rtol": 1e-4, "atol": 1e-5}
            torch.testing.assert_close(as_tensor(found[0]), expected, **tolerance)

    def test_fsdp_is_training_of_the_whole_model(self):
        """FSDP2 gives the parameters of the whole model, with its buffers in shared memory and without."""
        for allocate in (False, True):
            found = ranks.run(by_fsdp, 2, allocate)
            self.assertEqual(len(set(found)), 1)
            torch.testing.assert_close(as_tensor(found[0]), self.expected(), rtol=1e-4, atol=1e-5)

    def example(self, name, count, *arguments, **variables):
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(count), "--standalone"]
        command += [os.path.join(EXAMPLES, name), *arguments]
        env = {**os.environ, **variables, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=80, env=env, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return done.stdout

    def test_digits_leave_a_report(self):
        """The digits example learns; with RINGCCL_REPORT naming a folder the report is there, with what was called."""
        with tempfile.TemporaryDirectory() as folder:
            out = self.example("01_ddp_digits.py", 4, "--epochs", "1", RINGCCL_REPORT=folder)
            self.assertIn("all ranks have the same parameters", out)
            with open(os.path.join(folder, "cluster_report.json"), encoding="utf-8") as file:
                report = json.load(file)
        calls = json.dumps(report["collectives"]) if "collectives" in report else json.dumps(report)
        for name in ("all_reduce", "broadcast", "barrier"):
            self.assertIn(name, calls)
        self.assertEqual(report["cluster"]["world_size"], 4)

    def test_examples(self):
        """The examples that check themselves end well."""
        self.assertIn("equal; each rank keeps", self.example("03_tensor_parallel.py", 2))
        self.assertIn("are those of one process", self.example("04_pipeline.py", 3))


if __name__ == "__main__":
    unittest.main()
