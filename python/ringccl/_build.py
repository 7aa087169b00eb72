"""Builds the shim: the C++ part that one version of torch can load. Needs g++ and torch's headers, no Python's."""

import os
import re
import shutil
import subprocess
import tempfile

FOLDER = os.path.dirname(os.path.abspath(__file__))
# Sources see torch by its version: what it calls its minor decides which binary fits.
SECONDS_MAX = 600


class CannotBuild(RuntimeError):
    """There is no shim, and why."""


def minor_of(version):
    """`2.15` of `2.15.0+cpu`."""
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None:
        raise CannotBuild(f"`{version}` is no version of torch")
    return f"{match[1]}.{match[2]}"


def shim_name(minor):
    """The file name of the shim for one minor version of torch."""
    return f"shim-{minor}.so"


def torch_version(site):
    """The version of the torch that is installed in a folder; None without one. Does not import it."""
    try:
        with open(os.path.join(site, "torch", "version.py"), encoding="utf-8") as file:
            match = re.search(r"^__version__ = '([^']+)'", file.read(), re.MULTILINE)
    except OSError:
        return None
    return match[1] if match else None


def has_cxx11_abi(torch):
    """Which of the two layouts of std::string torch was built with: the newer, unless its library says otherwise."""
    config = os.path.join(torch, "share", "cmake", "Torch", "TorchConfig.cmake")
    try:
        with open(config, encoding="utf-8") as file:
            return "_GLIBCXX_USE_CXX11_ABI=0" not in file.read()
    except OSError:
        return True


def build(torch, library, target):
    """Compiles the shim against the torch in folder `torch` and the library in folder `library`, to file `target`."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        raise CannotBuild("there is no C++ compiler: install g++ (Debian, Ubuntu: `apt-get install g++`) or set CXX")
    include = os.path.join(torch, "include")
    if not os.path.isdir(os.path.join(include, "torch")):
        raise CannotBuild(f"{torch} has no headers: install torch from a wheel that has them")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    descriptor, part = tempfile.mkstemp(suffix=".so", dir=os.path.dirname(target))
    os.close(descriptor)
    command = [compiler, "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w", "-s"]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(has_cxx11_abi(torch))}", f"-I{os.path.join(FOLDER, 'include')}"]
    command += [f"-isystem{include}", f"-isystem{os.path.join(include, 'torch/csrc/api/include')}"]
    command += [os.path.join(FOLDER, "csrc", "shim.cpp"), "-o", part, f"-L{os.path.join(torch, 'lib')}"]
    command += ["-ltorch_cpu", "-lc10", f"-L{library}", "-lringccl_c", "-Wl,-rpath,$ORIGIN"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
        if done.returncode != 0:
            errors = [line for line in done.stderr.splitlines() if "error" in line][:3]
            raise CannotBuild(f"{compiler} failed: {' / '.join(errors) or done.stderr[-300:]}")
        # Other processes may build the same: the last one wins, and none sees a half.
        os.chmod(part, 0o755)
        os.replace(part, target)
    except subprocess.TimeoutExpired as error:
        raise CannotBuild(f"{compiler} did not finish within {SECONDS_MAX} s") from error
    finally:
        if os.path.exists(part):
            os.unlink(part)
    return target
