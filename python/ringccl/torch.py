"""The backend "ringccl" of torch.distributed: registering it, and what of it is in use.

Two forms do the same: a C++ shim that torch loads (fast, complete), and Python on the same library where no shim fits
the installed torch and none can be built. `info()` says which.
"""

import atexit
import ctypes
import os
import signal
import sys
import weakref

try:
    import torch
    import torch.distributed as dist
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("ringccl: PyTorch is not installed: pip install 'torch==2.15.*'", name="torch") from error

from . import _build, _native

_state = {"form": None, "why": None, "path": None, "told": set()}
_reporting = weakref.WeakSet()
# Variables that ask for something that is written at the end.
_WRITES = ("RINGCCL_REPORT", "FAKEGPU_CLUSTER_REPORT_PATH", "RINGCCL_TRACE")


def info():
    """What is in use: form ("shim" or "python", and why not the shim), file, versions, aliases."""
    form = _form()
    return {
        "form": form,
        "why_no_shim": _state["why"],
        "shim": _state["path"],
        "library": _native.LIBRARY,
        "version": _native.version(),
        "torch": torch.__version__,
        "aliases": sorted(_aliases),
    }


def _candidates(minor):
    """Where a shim for this torch may be, first those that came with the package."""
    name = _build.shim_name(minor)
    yield os.path.join(_native.FOLDER, "lib", name)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    from . import __version__

    yield os.path.join(cache, "ringccl", __version__, name)


def _find_or_build():
    """The path of a shim that fits."""
    minor = _build.minor_of(torch.__version__)
    places = list(_candidates(minor))
    for path in places:
        if os.path.exists(path):
            return path
    print(f"ringccl: building the shim for torch {minor}, once; this takes some 15 s", file=sys.stderr)
    path = places[-1] if not os.access(os.path.dirname(places[0]), os.W_OK) else places[0]
    return _build.build(os.path.dirname(torch.__file__), os.path.dirname(_native.LIBRARY), path)


def _form():
    """Loads the shim, or finds out that there is none; "shim" or "python"."""
    if _state["form"]:
        return _state["form"]
    _native.library()  # the shim finds it loaded, wherever it lies
    wish = os.environ.get("RINGCCL_TORCH_SHIM", "")
    if wish not in ("", "0", "1"):
        raise RuntimeError(f"RINGCCL_TORCH_SHIM={wish}: not 0 (never), 1 (always) or nothing (if it can be had)")
    try:
        if wish == "0":
            raise _build.CannotBuild("RINGCCL_TORCH_SHIM=0 asks for none")
        path = _find_or_build()
        torch.ops.load_library(path)
        _state.update(form="shim", path=path)
    except (_build.CannotBuild, OSError) as error:
        if wish == "1":
            raise RuntimeError(f"ringccl: no shim for torch {torch.__version__}: {error}") from error
        _state.update(form="python", why=str(error))
        print(
            f"ringccl: no shim for torch {torch.__version__}, so the slower Python form runs: {error}",
            file=sys.stderr,
        )
    return _state["form"]


def _end_with_launcher():
    """Has this process end when torchrun does, also if that is killed: ranks without a launcher would wait, or compute,
    for nobody. torch.multiprocessing and `ringccl run` do the same."""
    if not sys.platform.startswith("linux") or "TORCHELASTIC_RUN_ID" not in os.environ or _state.get("bound"):
        return
    _state["bound"] = True
    launcher = os.getppid()
    set_death_signal = 1  # PR_SET_PDEATHSIG of sys/prctl.h
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != launcher:  # it ended in between
        os.kill(os.getpid(), signal.SIGTERM)


def _is_crowded(options):
    """Whether there are as many ranks on this host as cores that they may use, or more."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    ranks = int(ranks) if ranks.isdigit() else 0
    whole = dist.get_world_size() if dist.is_initialized() else options.group_size
    return max(ranks, whole) >= len(os.sched_getaffinity(0))


def _maker(name):
    """What torch calls to have a backend for a group, under this name."""

    def make(options, _backend_options):
        # The group of all ranks is made before there is a default one; it alone writes the report, and leaves together
        # with the other ranks for that. Nobody waits for anybody when there is nothing to write.
        reports = not dist.is_initialized() and any(os.environ.get(variable) for variable in _WRITES)
        if name != "ringccl" and name not in _state["told"]:
            _state["told"].add(name)
            if options.group_rank == 0:
                print(
                    f'ringccl: backend="{name}" is served by RingCCL on the CPU, as RINGCCL_AS asks', file=sys.stderr
                )
        # Whoever has put this function under another name as well means that one, in the profiler too.
        others = [other.lower() for other, plugin in dist.Backend._plugins.items() if plugin.creator_fn is make]
        title = next((other for other in others if other != name), name)
        timeout = options.timeout.total_seconds()
        _end_with_launcher()
        if _form() == "python":
            from . import _fallback

            return _fallback.make(options, timeout, reports)
        group = options.process_group
        rank, size, is_crowded = options.group_rank, options.group_size, _is_crowded(options)
        torch.ops.ringccl.attach(group.boxed(), "ringccl/", rank, size, title, timeout, reports, is_crowded)
        backend = group._get_backend(torch.device("cpu"))
        if reports:
            _reporting.add(group)
        return backend

    return make


@atexit.register
def _leave():
    """A program that ends without destroy_process_group still leaves its report."""
    for group in list(_reporting):
        try:
            group._get_backend(torch.device("cpu")).shutdown()
        except Exception as error:  # the interpreter ends; whoever can be told is
            print(f"ringccl: no report: {error}", file=sys.stderr)


_aliases = set()


def register():
    """Registers the backend "ringccl"; torch calls this when a script names it."""
    if "RINGCCL" not in dist.Backend._plugins:
        dist.Backend.register_backend("ringccl", _maker("ringccl"), extended_api=True, devices=["cpu"])


def register_aliases(names):
    """Has the backend answer to other names as well, of "nccl" and "gloo", separated by commas.

    With a GPU in use "nccl" stays what it is.
    """
    if not dist.is_available():
        return
    register()
    for name in (name.strip().lower() for name in names.split(",")):
        if not name or name == "ringccl":
            continue
        if name not in ("nccl", "gloo"):
            raise ValueError(f"RINGCCL_AS={names}: `{name}` is not nccl or gloo")
        if name == "nccl" and torch.cuda.is_available():
            print("ringccl: a GPU is there, so nccl stays nccl", file=sys.stderr)
            continue
        dist.Backend.register_backend(name, _maker(name), extended_api=True, devices=["cpu"])
        _aliases.add(name)


def empty(*sizes, dtype=None):
    """A tensor in memory that other ranks may read, with any content; `torch.empty`'s arguments."""
    if _form() == "python":
        return torch.empty(*sizes, dtype=dtype)
    if len(sizes) == 1 and not isinstance(sizes[0], int):
        sizes = tuple(sizes[0])
    return torch.ops.ringccl.empty(list(sizes), dtype or torch.get_default_dtype())


def register_tensor(tensor, group=None):
    """Has collectives of a group read this tensor's memory where it is. Every rank of the group calls this, each with a
    tensor of its own from `ringccl.empty` or `share`; views of it count as it does. Lasts as long as the group.
    """
    if _form() == "shim":
        torch.ops.ringccl.register((group or dist.group.WORLD).boxed(), tensor)
    return tensor


def share(tensor, group=None):
    """Moves the tensor's memory, with content and views, to where other ranks can read it, and registers it. Every rank
    of the group calls this. numpy arrays and pointers that were made of it before stay with the old memory.
    """
    if _form() == "shim":
        torch.ops.ringccl.share(tensor)
        register_tensor(tensor, group)
    return tensor
