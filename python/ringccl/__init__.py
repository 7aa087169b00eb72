"""RingCCL for PyTorch: the backend "ringccl" of torch.distributed, for tensors in the memory of the CPU.

Nothing of this needs an import in a script: `torch.distributed.init_process_group("ringccl")` finds the package. What
can be imported is beside the backend: `ringccl.empty` makes tensors that collectives read where they are,
`ringccl.ddp` records and compresses, `ringccl.torch.info` says what is in use.
"""

__version__ = "0.1.0"


def empty(*sizes, dtype=None):
    """A tensor in memory that other ranks may read; `torch.empty`'s arguments. See `ringccl.torch.register_tensor`."""
    from . import torch as backend

    return backend.empty(*sizes, dtype=dtype)
