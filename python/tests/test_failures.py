"""What survivors see when a rank dies, leaves, is late or differs; and that nothing is left behind."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist

import ranks


def error_of(call):
    """The text of the error that a call ends in, and after how long."""
    begun = time.monotonic()
    try:
        call()
    except RuntimeError as error:
        return type(error).__name__, str(error), time.monotonic() - begun
    raise AssertionError("no error")


def a_rank_is_killed(rank, n):
    dist.barrier()
    if rank == n - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    kind, text, took = error_of(lambda: dist.all_reduce(torch.ones(1 << 16)))
    # Later calls say the same, at once.
    _, again, _ = error_of(lambda: dist.barrier())
    return kind, text, took, again


def a_rank_is_late(rank, n):
    if rank == 0:
        found = error_of(lambda: dist.barrier(async_op=False))
    else:
        found = None
        store = dist.distributed_c10d._get_default_store()
        store.wait(["over"], timedelta(seconds=20))
    if rank == 0:
        dist.distributed_c10d._get_default_store().set("over", "1")
    return found


def a_wait_is_short(rank, n):
    if rank == 0:
        tensor = torch.ones(1)
        work = dist.irecv(tensor, 1)
        found = error_of(lambda: work.wait(timedelta(milliseconds=50)))
        dist.barrier()
        work.wait()
        return found, None, tensor.item()
    dist.barrier()
    dist.send(torch.tensor([4.0]), 0)
    return None


def calls_differ(rank, n):
    call = dist.barrier if rank == 0 else lambda: dist.all_reduce(torch.ones(3))
    return error_of(call)


def aborted(rank, n):
    group = dist.group.WORLD
    if rank == 0:
        backend = group._get_backend(torch.device("cpu"))
        work = dist.all_reduce(torch.ones(1 << 16), async_op=True)
        backend.abort()
        return error_of(work.wait)
    return error_of(lambda: (dist.all_reduce(torch.ones(1 << 16)), dist.barrier()))


def forked(rank, n):
    dist.all_reduce(torch.ones(1))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            dist.all_reduce(torch.ones(1))
        except RuntimeError as error:
            os.write(writer, str(error).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    text = os.read(reader, 10_000).decode()
    status = os.waitpid(child, 0)[1]
    # The child's end is not this rank's.
    dist.all_reduce(torch.ones(1))
    return status, text


class Failures(unittest.TestCase):
    def setUp(self):
        self.before = set(os.listdir("/dev/shm"))

    def tearDown(self):
        left = {name for name in os.listdir("/dev/shm") if name.startswith("ringccl")} - self.before
        self.assertEqual(left, set())

    def test_a_killed_rank_is_named_at_once(self):
        """The death of a rank ends the others' operations within a second, by an error that names it."""
        for kind, text, took, again in ranks.run(a_rank_is_killed, 3, missing=[2])[:2]:
            self.assertEqual(kind, "DistBackendError")
            self.assertIn("rank 2 (", text)
            self.assertIn("all_reduce on rank", text)
            self.assertIn("rank 2", again)
            self.assertLess(took, 1.0)

    def test_a_late_rank_is_named(self):
        """An operation that takes longer than the group's time limit ends by an error that says who is late."""
        kind, text, took = ranks.run(a_rank_is_late, 2, timeout_s=1.0)[0]
        self.assertEqual(kind, "DistBackendError")
        self.assertIn(" Timed out waiting 1000ms", text)
        self.assertIn("rank 1", text)
        self.assertTrue(0.9 < took < 5, took)

    def test_a_wait_has_its_own_limit(self):
        """`wait(timeout)` ends after that time and leaves the operation to go on."""
        (kind, text, took), _, value = ranks.run(a_wait_is_short, 2)[0]
        self.assertEqual((kind, value), ("DistBackendError", 4.0))
        self.assertIn("Timed out waiting 50ms", text)
        self.assertLess(took, 2)

    def test_different_calls_are_told(self):
        """Ranks that call different things are told which."""
        for _, text, took in ranks.run(calls_differ, 2):
            self.assertIn("rank 0 called barrier", text)
            self.assertIn("rank 1 called all_reduce", text)
            self.assertLess(took, 3)

    def test_abort_wakes_everybody(self):
        """An abort on one rank ends the operations of all."""
        for kind, _, took in ranks.run(aborted, 2):
            self.assertIn(kind, ("DistBackendError", "RuntimeError"))
            self.assertLess(took, 3)

    def test_a_forked_child_is_refused(self):
        """A child of fork gets an error that says why, and its parent's group goes on."""
        for status, text in ranks.run(forked, 2):
            self.assertEqual(status, 0)
            self.assertIn("forked after the communicator was made", text)


ENDLESS = """
import os, sys, time, torch, torch.distributed as dist
dist.init_process_group("ringccl")
dist.barrier()
with open(os.path.join(sys.argv[1], str(os.getpid())), "w"): pass
until = time.monotonic() + 90  # if the test itself was killed
for step in range(10 ** 9):
    if time.monotonic() > until: break
    dist.all_reduce(torch.ones(1 << 12))
    if sys.argv[2] == "raises" and step == 1000 and dist.get_rank() == 1:
        raise SystemExit("this is expected")
"""


def is_there(pid):
    """Whether a process runs, or waits for somebody to take note of its end."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class NothingIsLeft(unittest.TestCase):
    """However a job of torchrun ends, its ranks end and no segment stays."""

    def end_by(self, how, act):
        before = {name for name in os.listdir("/dev/shm") if name.startswith("ringccl")}
        with tempfile.TemporaryDirectory() as folder:
            script, pids = os.path.join(folder, "train.py"), os.path.join(folder, "pids")
            os.mkdir(pids)
            with open(script, "w", encoding="utf-8") as file:
                file.write(ENDLESS)
            command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", "--standalone"]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
            launcher = subprocess.Popen([*command, script, pids, how], **quiet)
            try:
                until = time.monotonic() + 40
                while len(os.listdir(pids)) < 3:
                    self.assertLess(time.monotonic(), until, "the ranks did not start")
                    time.sleep(0.05)
                ranks_of_job = [int(name) for name in os.listdir(pids)]
                act(launcher, ranks_of_job)
                until = time.monotonic() + 20
                while any(is_there(pid) for pid in ranks_of_job):
                    self.assertLess(time.monotonic(), until, f"{how}: ranks are left")
                    time.sleep(0.02)
                launcher.wait(timeout=40)
            finally:
                if launcher.poll() is None:
                    os.killpg(launcher.pid, signal.SIGKILL)
                    launcher.wait()
        after = {name for name in os.listdir("/dev/shm") if name.startswith("ringccl")}
        self.assertEqual(after - before, set(), how)

    def test_an_exception(self):
        self.end_by("raises", lambda launcher, pids: None)

    def test_control_c(self):
        self.end_by("control-c", lambda launcher, pids: os.killpg(launcher.pid, signal.SIGINT))

    def test_a_killed_rank(self):
        self.end_by("rank", lambda launcher, pids: os.kill(pids[0], signal.SIGKILL))

    def test_a_killed_launcher(self):
        self.end_by("launcher", lambda launcher, pids: launcher.kill())


SCRIPT = """
import os, signal, sys, time, torch, torch.distributed as dist
dist.init_process_group("ringccl")
attempt, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), dist.get_rank()
dist.all_reduce(torch.ones(1))
if attempt == 0 and rank == int(sys.argv[1]):
    os.kill(os.getpid(), signal.SIGKILL)
for _ in range(20):
    total = torch.ones(1)
    dist.all_reduce(total)
if rank == 0:
    print("finished attempt", attempt, "sum", total.item(), flush=True)
dist.destroy_process_group()
"""


class Elastic(unittest.TestCase):
    def test_torchrun_starts_again_after_a_death(self):
        """`torchrun --max-restarts` recovers from the death of rank 0 and of another one."""
        for victim in (0, 2):
            with tempfile.TemporaryDirectory() as folder:
                script = os.path.join(folder, "train.py")
                with open(script, "w", encoding="utf-8") as file:
                    file.write(SCRIPT)
                launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3"]
                launcher += ["--max-restarts", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
                done = subprocess.run(
                    [*launcher, script, str(victim)], capture_output=True, text=True, timeout=100, check=False
                )
            self.assertEqual(done.returncode, 0, done.stderr[-3000:])
            self.assertIn("finished attempt 1 sum 3.0", done.stdout)


if __name__ == "__main__":
    unittest.main()
