"""The library and its C interface, by ctypes: the part that both forms of the backend share."""

import ctypes
import os
from ctypes import POINTER, c_char_p, c_double, c_int32, c_uint8, c_uint32, c_uint64, c_void_p

ABI = 1
ID_BYTES = 128
FOLDER = os.path.dirname(os.path.abspath(__file__))
LIBRARY = os.path.join(FOLDER, "lib", "libringccl_c.so")

OK, INVALID_ARGUMENT, INVALID_USAGE, SYSTEM, REMOTE, TIMEOUT, INTERNAL, PENDING = range(8)
KINDS = {
    name: number
    for number, name in enumerate(
        "all_reduce broadcast reduce all_gather reduce_scatter all_to_all gather scatter all_gather_v "
        "reduce_scatter_v all_to_all_v barrier send recv".split()
    )
}

RELEASE = ctypes.CFUNCTYPE(None, c_void_p)


class Op(ctypes.Structure):
    """An operation, as `ringccl_op` of ringccl.h."""

    _fields_ = [
        ("kind", c_uint32),
        ("dtype", c_uint32),
        ("reduction", c_uint32),
        ("peer", c_int32),
        ("tag", c_uint32),
        ("reserved", c_uint32),
        ("send", c_void_p),
        ("recv", c_void_p),
        ("count", c_uint64),
        ("counts", POINTER(c_uint64)),
        ("recv_counts", POINTER(c_uint64)),
        ("factor", c_void_p),
    ]


class Options(ctypes.Structure):
    """Settings of a communicator, as `ringccl_options` of ringccl.h."""

    _fields_ = [
        ("timeout_ns", c_uint64),
        ("join_timeout_ns", c_uint64),
        ("reports", c_uint32),
        ("reserved", c_uint32),
    ]


_loaded = None


def library():
    """The loaded library, with the types of its functions."""
    global _loaded
    if _loaded is not None:
        return _loaded
    if not os.path.exists(LIBRARY):
        raise RuntimeError(f"ringccl: {LIBRARY} is missing: install the package anew, see docs/pytorch.md")
    lib = ctypes.CDLL(LIBRARY, mode=ctypes.RTLD_GLOBAL)
    found = lib.ringccl_abi()
    if found != ABI:
        raise RuntimeError(f"ringccl: {LIBRARY} has interface {found}, this package needs {ABI}: install it anew")
    lib.ringccl_version.restype = c_char_p
    lib.ringccl_last_error.restype = c_char_p
    lib.ringccl_root_new.argtypes = [POINTER(c_uint8), POINTER(c_void_p)]
    lib.ringccl_root_free.argtypes = [c_void_p]
    lib.ringccl_comm_join.argtypes = [POINTER(c_uint8), c_uint32, c_uint32, POINTER(Options), POINTER(c_void_p)]
    lib.ringccl_comm_run.argtypes = [c_void_p, POINTER(Op)]
    lib.ringccl_comm_start.argtypes = [c_void_p, POINTER(Op), c_uint64, c_void_p, c_void_p, POINTER(c_void_p)]
    lib.ringccl_comm_abort.argtypes = [c_void_p]
    lib.ringccl_comm_finalize.argtypes = [c_void_p]
    lib.ringccl_comm_free.argtypes = [c_void_p]
    lib.ringccl_work_wait.argtypes = [c_void_p, c_uint64]
    lib.ringccl_work_source.argtypes = [c_void_p]
    lib.ringccl_work_free.argtypes = [c_void_p]
    _loaded = lib
    return lib


def last_error():
    """The text of the calling thread's last error."""
    return library().ringccl_last_error().decode(errors="replace")


def version():
    """The library's version."""
    return library().ringccl_version().decode()


__all__ = ["ABI", "ID_BYTES", "KINDS", "LIBRARY", "Op", "Options", "last_error", "library", "version", "c_double"]
