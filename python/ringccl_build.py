"""The build backend (PEP 517): puts the package, the library and a shim for the torch at hand into a wheel.

The library comes from the workspace around this folder, by cargo, or from `ringccl/lib` where there is none, as in a
source archive. The shim is built if the environment that pip installs into has torch and a compiler is there; if not,
the first use builds it.
"""

import base64
import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, HERE)

from ringccl import __version__, _build  # noqa: E402  (found by the line above)

NAME = f"ringccl-{__version__}"
LIBRARY = "libringccl_c.so"


def _say(text):
    print(f"ringccl: {text}", file=sys.stderr, flush=True)


def _has_workspace():
    return os.path.exists(os.path.join(ROOT, "capi", "Cargo.toml"))


def _library(profile):
    """The path of the library, built by a profile of cargo's if the workspace is there."""
    packed = os.path.join(HERE, "ringccl", "lib", LIBRARY)
    if not _has_workspace():
        if os.path.exists(packed):
            return packed
        raise SystemExit(f"ringccl: neither the workspace is around this folder nor {packed} in it")
    cargo = shutil.which("cargo")
    if cargo is None:
        raise SystemExit("ringccl: cargo is not on PATH: install Rust 1.95 or later (https://rustup.rs)")
    target = os.environ.get("CARGO_TARGET_DIR") or os.path.join(ROOT, "target")
    command = [cargo, "build", "--profile", profile, "--locked", "-p", "ringccl-capi"]
    _say(f"building the library ({' '.join(command[1:])})")
    done = subprocess.run([*command, "--target-dir", target], check=False, cwd=ROOT)
    if done.returncode != 0:
        raise SystemExit("ringccl: cargo could not build the library; see its messages above")
    return os.path.join(target, "debug" if profile == "dev" else profile, LIBRARY)


def _strip(path):
    """Takes debug information out, if there is a tool for it."""
    tool = shutil.which("strip")
    if tool:
        subprocess.run([tool, "--strip-debug", path], check=False)


def _torch():
    """The folder of the torch in the environment that is installed into."""
    # Under build isolation torch cannot be imported, but sys.prefix is still that environment's.
    for key in ("platlib", "purelib"):
        site = sysconfig.get_paths()[key]
        if _build.torch_version(site):
            return os.path.join(site, "torch")
    return None


def _tree(stage, config_settings):
    """Lays the package out in folder `stage`, with everything built. `profile` is the one setting: cargo's."""
    profile = (config_settings or {}).get("profile", "release")
    package = os.path.join(stage, "ringccl")
    ignore = shutil.ignore_patterns("__pycache__", "lib")
    shutil.copytree(os.path.join(HERE, "ringccl"), package, ignore=ignore)
    if _has_workspace():
        shutil.copytree(os.path.join(ROOT, "capi", "include"), os.path.join(package, "include"), dirs_exist_ok=True)
    lib = os.path.join(package, "lib")
    os.makedirs(lib)
    shutil.copy(_library(profile), os.path.join(lib, LIBRARY))
    _strip(os.path.join(lib, LIBRARY))
    return package


def _add_shim(package):
    """Builds the shim for the torch at hand into the package; says why not where that fails."""
    torch = _torch()
    if torch is None:
        _say("torch is not installed yet, so the first use builds the shim (15 s)")
        return
    minor = _build.minor_of(_build.torch_version(os.path.dirname(torch)))
    lib = os.path.join(package, "lib")
    # Compiled from the staged sources: the header lies beside them there.
    _build.FOLDER = package
    try:
        _say(f"building the shim for torch {minor}")
        _build.build(torch, lib, os.path.join(lib, _build.shim_name(minor)))
    except _build.CannotBuild as error:
        _say(f"no shim for torch {minor}: {error}; the slower Python form will be used until there is one")


def _entry_points():
    """The entry points of pyproject.toml, in the form of a wheel."""
    lines = []
    with open(os.path.join(HERE, "pyproject.toml"), encoding="utf-8") as file:
        for line in file:
            line = line.strip()
            if line.startswith("[project.entry-points."):
                lines.append("[" + line.split('"')[1] + "]")
            elif lines and "=" in line:
                name, _, value = line.partition("=")
                lines.append(f"{name.strip()} = {value.strip().strip(chr(34))}")
    return "\n".join(lines) + "\n"


def _metadata():
    return (
        f"Metadata-Version: 2.1\nName: ringccl\nVersion: {__version__}\n"
        "Summary: RingCCL as a backend of PyTorch's distributed package, for CPU tensors of one host\n"
        "License: Apache-2.0 OR MIT\nRequires-Python: >=3.10\n"
    )


def _tag():
    # One binary serves every CPython: it has no Python in it. glibc is the builder's.
    return f"py3-none-linux_{platform.machine()}"


def _write(wheel, files):
    """Writes a wheel of (name, bytes, mode), and its record."""
    record = []
    info = f"{NAME}.dist-info"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data, mode in [*files, (f"{info}/RECORD", None, 0o644)]:
            if data is None:
                data = "".join(f"{line}\n" for line in [*record, f"{name},,"]).encode()
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}")


def _info_files():
    info = f"{NAME}.dist-info"
    wheel = f"Wheel-Version: 1.0\nGenerator: ringccl_build\nRoot-Is-Purelib: false\nTag: {_tag()}\n"
    return [
        (f"{info}/METADATA", _metadata().encode(), 0o644),
        (f"{info}/WHEEL", wheel.encode(), 0o644),
        (f"{info}/entry_points.txt", _entry_points().encode(), 0o644),
    ]


def _files(stage):
    for folder, _, names in os.walk(stage):
        for name in sorted(names):
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                yield os.path.relpath(path, stage), file.read(), os.stat(path).st_mode & 0o777


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517: the wheel's file name."""
    name = f"{NAME}-{_tag()}.whl"
    with tempfile.TemporaryDirectory() as stage:
        _add_shim(_tree(stage, config_settings))
        _write(os.path.join(wheel_directory, name), [*_files(stage), *_info_files()])
    return name


def build_sdist(sdist_directory, config_settings=None):
    """PEP 517: a source archive with the finished library, so that only the shim is left to build."""
    name = f"{NAME}.tar.gz"
    with tempfile.TemporaryDirectory() as stage:
        _tree(stage, config_settings)
        for file in ("pyproject.toml", "ringccl_build.py"):
            shutil.copy(os.path.join(HERE, file), stage)
        with tarfile.open(os.path.join(sdist_directory, name), "w:gz") as archive:
            archive.add(stage, arcname=NAME)
            data = _metadata().encode()
            entry = tarfile.TarInfo(f"{NAME}/PKG-INFO")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return name


if __name__ == "__main__":
    # `python ringccl_build.py FOLDER`, as `cargo xtask wheel` does: the wheel for this interpreter's torch.
    os.makedirs(sys.argv[1], exist_ok=True)
    print(os.path.join(sys.argv[1], build_wheel(sys.argv[1])))
