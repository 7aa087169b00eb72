"""Trains a small network on the handwritten digits by DistributedDataParallel.

    ringccl run -n 8 --cluster examples/digits/cluster.yaml -- python3 examples/pytorch/01_ddp_digits.py
    torchrun --nproc-per-node 4 examples/pytorch/01_ddp_digits.py
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "digits", "data", "digits.csv")


def digits():
    """Images with pixels from 0 to 1, and what they show."""
    with open(DATA, encoding="ascii") as file:
        rows = torch.tensor([[int(number) for number in line.split(",")] for line in file])
    return rows[:, :64].float() / 16, rows[:, 64]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="ringccl")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(args.backend)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    images, labels = digits()
    data = TensorDataset(images[:1500], labels[:1500])
    sampler = DistributedSampler(data, ranks, rank, seed=1)
    loader = DataLoader(data, batch_size=max(64 // ranks, 1), sampler=sampler)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for batch, target in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(batch), target)
            loss.backward()
            optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        right = (model(images[1500:]).argmax(1) == labels[1500:]).float().mean()
        if rank == 0:
            text = f"loss {mean.item():.4f}, {100 * right.item():.1f} % of the test images"
            print(f"epoch {epoch + 1}: {text}", flush=True)
    dist.barrier()
    # Every rank has the same parameters, to the last bit.
    own = torch.cat([parameter.detach().view(-1) for parameter in model.parameters()])
    first = own.clone()
    dist.broadcast(first, 0)
    assert torch.equal(own, first), f"rank {rank} has other parameters than rank 0"
    if rank == 0:
        print("all ranks have the same parameters", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
