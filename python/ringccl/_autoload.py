"""What `import torch` runs at its end: nothing, unless RINGCCL_AS asks for aliases."""

import os


def autoload():
    """Registers the backend under the names of RINGCCL_AS. Never raises: it would break `import torch`."""
    if not os.environ.get("RINGCCL_AS"):
        return
    try:
        from . import torch as backend

        backend.register_aliases(os.environ["RINGCCL_AS"])
    except Exception as error:  # whatever it is, the program may not even need it
        import sys

        print(f"ringccl: RINGCCL_AS={os.environ['RINGCCL_AS']} has no effect: {error}", file=sys.stderr)
