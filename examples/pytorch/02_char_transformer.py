"""A character-level transformer that learns this project's README, by DDP or by FSDP2.

    torchrun --nproc-per-node 2 examples/pytorch/02_char_transformer.py --how ddp
    torchrun --nproc-per-node 2 examples/pytorch/02_char_transformer.py --how fsdp
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

TEXT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "README.md")


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, mask):
        y = self.before(x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.inner(self.after(x))


class Transformer(nn.Module):
    def __init__(self, letters, width, layers, context):
        super().__init__()
        self.letters, self.places = nn.Embedding(letters, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.out = nn.Linear(width, letters)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context))

    def forward(self, x):
        x = self.letters(x) + self.places.weight
        for block in self.blocks:
            x = block(x, self.mask)
        return self.out(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="ringccl")
    parser.add_argument("--how", choices=["ddp", "fsdp"], default="ddp")
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(args.backend)
    rank, context = dist.get_rank(), 64
    with open(TEXT, encoding="utf-8") as file:
        text = file.read()
    alphabet = sorted(set(text))
    data = torch.tensor([alphabet.index(letter) for letter in text])
    torch.manual_seed(0)
    model = Transformer(len(alphabet), 128, 4, context)
    if args.how == "ddp":
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    else:
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
        # What FSDP gathers and reduces then lies where all ranks can read it.
        if args.backend == "ringccl":
            model.set_allocate_memory_from_process_group_for_comm(True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(rank + 1)
    begun = time.perf_counter()
    for step in range(args.steps):
        starts = torch.randint(len(data) - context - 1, (8,)).tolist()
        batch = torch.stack([data[start : start + context + 1] for start in starts])
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step == args.steps - 1:
            mean = loss.detach().clone()
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            if rank == 0:
                print(f"step {step}: loss {mean.item():.3f}", flush=True)
    if rank == 0:
        print(f"{1e3 * (time.perf_counter() - begun) / args.steps:.1f} ms a step", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
