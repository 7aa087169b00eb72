"""The package: its entry points, aliases, both forms of the backend, and shared memory."""

import os
import subprocess
import sys
import unittest

import torch
import torch.distributed as dist

import ranks
import test_collectives as cases

TRAIN = """
import torch, torch.distributed as dist
{before}
dist.init_process_group({name!r})
total = torch.ones(1)
dist.all_reduce(total)
import os; os.write(1, f"sum {{total.item()}} {{dist.get_backend()}}\\n".encode())
dist.destroy_process_group()
"""


def torchrun(code, count, **variables):
    """Output and errors of a script on `count` ranks."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(count), "--standalone"]
    command += ["--no-python", sys.executable, "-c", code]
    env = {**os.environ, **variables, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr[-3000:])
    return done.stdout, done.stderr


def zero_copy(rank, n):
    """Registered tensors give the same sums, at other offsets and with ordinary ones among them."""
    import ringccl
    import ringccl.torch as ours

    shared = ours.register_tensor(ringccl.empty(1 << 20))
    assert torch.ops.ringccl.is_shared(shared) and torch.ops.ringccl.is_shared(shared[100:])
    shared.fill_(rank + 1)
    dist.all_reduce(shared[1000 * rank :][: 1 << 19])
    assert shared[1000 * rank].item() == n * (n + 1) / 2
    moved = torch.full((1 << 18,), float(rank))
    view = moved[10:]
    ours.share(moved)
    dist.all_reduce(moved)
    assert view[0].item() == n * (n - 1) / 2
    plain = moved if rank else torch.full((1 << 18,), n * (n - 1) / 2)
    dist.all_reduce(plain)
    assert plain[-1].item() == n * n * (n - 1) / 2
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.supports_tensor_alloc(torch.device("cpu"))
    buffers = [backend.allocate_tensor(1 << 20, dtype=torch.float32, device=torch.device("cpu")) for _ in range(20)]
    assert torch.ops.ringccl.is_shared(buffers[0])
    for buffer in buffers:
        buffer.fill_(1.0)
        dist.all_reduce(buffer)
        assert buffer[0].item() == n == buffer[-1].item()
    del buffers, buffer
    again = backend.allocate_tensor(1 << 20, dtype=torch.float32, device=torch.device("cpu"))
    assert torch.ops.ringccl.is_shared(again)
    del shared, view, moved


def whole_suite_of_the_python_form(rank, n):
    import ringccl.torch as ours

    assert ours.info()["form"] == "python"
    for case in (cases.every_reduction, cases.every_copy, cases.uneven, cases.layouts, cases.functional):
        case(rank, n)
    tensor = torch.full((4,), float(rank))
    other = torch.empty(4)
    works = [dist.isend(tensor, (rank + 1) % n), dist.irecv(other, (rank - 1) % n)]
    for work in works:
        work.wait()
    assert other[0].item() == (rank - 1) % n
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    model(torch.ones(3, 4)).sum().backward()


class Package(unittest.TestCase):
    def test_no_import_is_needed(self):
        """A script that only names the backend gets it, alone and for a device."""
        for name in ("ringccl", "cpu:ringccl"):
            out, _ = torchrun(TRAIN.format(before="", name=name), 2)
            self.assertEqual(out.count("sum 2.0"), 2, out)

    def test_aliases(self):
        """With RINGCCL_AS a script's "nccl" or "gloo" is served here, with one line that says so."""
        for name in ("nccl", "gloo"):
            out, err = torchrun(TRAIN.format(before="", name=name), 2, RINGCCL_AS="nccl,gloo")
            self.assertEqual(out.count(f"sum 2.0 {name}"), 2, out)
            self.assertEqual(err.count(f'backend="{name}" is served by RingCCL'), 1, err)

    def test_wrong_alias(self):
        """A name that cannot be taken is told, and `import torch` goes on."""
        _, err = torchrun("import torch; print(torch.ones(1))", 1, RINGCCL_AS="mpi")
        self.assertIn("`mpi` is not nccl or gloo", err)

    def test_without_aliases_nothing_is_imported(self):
        """`import torch` loads two small modules of ours and nothing else."""
        code = "import sys, torch; print([m for m in sys.modules if 'ringccl' in m])"
        env = {key: value for key, value in os.environ.items() if key != "RINGCCL_AS"}
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True).stdout
        self.assertEqual(out.strip(), "['ringccl', 'ringccl._autoload']")

    def test_zero_copy(self):
        """Tensors in shared memory: registered, moved there, and from the group's pool."""
        for n in (2, 3):
            ranks.run(zero_copy, n)

    def test_python_form(self):
        """Without a shim the same collectives give the same results, and a line says which form runs."""
        code = "import test_package, ranks; ranks.run(test_package.whole_suite_of_the_python_form, 2)"
        env = {**os.environ, "RINGCCL_TORCH_SHIM": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", code]
        here = os.path.dirname(os.path.abspath(__file__))
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, cwd=here, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        self.assertIn("the slower Python form runs", done.stderr)


if __name__ == "__main__":
    unittest.main()
