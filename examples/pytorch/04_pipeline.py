"""A model whose layers lie on different ranks: activations go forth and gradients back, by send and receive.

    torchrun --nproc-per-node 3 examples/pytorch/04_pipeline.py
"""

import torch
import torch.distributed as dist
from torch import nn

WIDTH, PIECES, ROWS = 16, 4, 8


def main():
    torch.set_num_threads(1)
    dist.init_process_group("ringccl")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(ranks)]
    pieces = torch.randn(PIECES, ROWS, WIDTH)
    own = layers[rank]
    kept, sends = [], []
    for number, piece in enumerate(pieces):
        if rank > 0:
            piece = torch.empty(ROWS, WIDTH)
            dist.recv(piece, rank - 1, tag=number)
        piece = piece.requires_grad_()
        output = own(piece)
        kept.append((piece, output))
        if rank < ranks - 1:
            sends.append(dist.isend(output.detach(), rank + 1, tag=number))
    for number, (piece, output) in enumerate(kept):
        if rank == ranks - 1:
            output.square().sum().backward()
        else:
            gradient = torch.empty(ROWS, WIDTH)
            dist.recv(gradient, rank + 1, tag=PIECES + number)
            output.backward(gradient)
        if rank > 0:
            sends.append(dist.isend(piece.grad, rank - 1, tag=PIECES + number))
    for send in sends:
        send.wait()
    # The same by one process.
    torch.manual_seed(0)
    whole = nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(ranks)])
    whole(pieces).square().sum().backward()
    torch.testing.assert_close(own[0].weight.grad, whole[rank][0].weight.grad)
    dist.barrier()
    if rank == 0:
        print("the gradients are those of one process", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
