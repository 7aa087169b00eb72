"""A layer that is cut over the ranks by DTensor gives what the whole one gives.

    torchrun --nproc-per-node 2 examples/pytorch/03_tensor_parallel.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def main():
    torch.set_num_threads(1)
    dist.init_process_group("ringccl")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    whole = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
    cut = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
    cut.load_state_dict(whole.state_dict())
    # Rank r keeps its rows of the first layer and its columns of the second; their outputs are added up.
    cut = parallelize_module(cut, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    data = torch.randn(16, 32)
    expected, found = whole(data), cut(data)
    torch.testing.assert_close(found, expected)
    expected.square().mean().backward()
    found.square().mean().backward()
    for one, other in zip(cut.parameters(), whole.parameters()):
        torch.testing.assert_close(one.grad.full_tensor(), other.grad)
    share = sum(parameter.to_local().numel() for parameter in cut.parameters())
    if dist.get_rank() == 0:
        print(f"equal; each rank keeps {share} of {sum(p.numel() for p in whole.parameters())} parameters", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
