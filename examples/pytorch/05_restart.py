"""Training that goes on after a rank was killed: torchrun starts the ranks again, and they take up their checkpoint.

    torchrun --nproc-per-node 3 --max-restarts 2 examples/pytorch/05_restart.py /tmp/restart.pt
"""

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 30


def main():
    path = sys.argv[1]
    torch.set_num_threads(1)
    dist.init_process_group("ringccl")
    rank, attempt = dist.get_rank(), int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    begin = 0
    if attempt > 0 and os.path.exists(path):
        state = torch.load(path)
        begin = state["step"]
        model.module.load_state_dict(state["model"])
    if rank == 0:
        print(f"attempt {attempt} begins at step {begin}", flush=True)
    for step in range(begin, STEPS):
        torch.manual_seed(1000 * step + rank)
        data = torch.randn(16, 8)
        optimizer.zero_grad()
        (model(data).squeeze() - data.sum(1)).square().mean().backward()
        optimizer.step()
        if rank == 0 and step % 5 == 4:
            torch.save({"step": step + 1, "model": model.module.state_dict()}, path + ".part")
            os.replace(path + ".part", path)
        if attempt == 0 and step == 17 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    if rank == 0:
        mean = model.module.weight.detach().mean()
        print(f"finished; the weights are {mean:.3f} on the mean, 1 would be right", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
