#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
#
# Builds the programs of Kokkos and AMReX that part_frameworks.py runs, for GPUs of compute capability 9.0, into
# build-gpu/frameworks. Needs nvcc, CMake and Ninja, and no GPU. Written for Kokkos 4.6.99 (28848dfa8), AMReX 24.10
# (92679babfc) and CUDA 13.0.
#
# Last tested on two cores without a GPU, where it takes half an hour: all three programs were compiled and linked.
set -eu

usage="usage: tests/gpu/build_frameworks.sh KOKKOS AMREX    the folders of their sources"
[ $# -eq 2 ] || { echo "$usage" >&2; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
kokkos=$(cd "$1" && pwd) amrex=$(cd "$2" && pwd)
out=$root/build-gpu/frameworks work=$root/build-gpu/frameworks-work
cuda=$(cd "$(dirname "$(readlink -f "$(command -v nvcc)")")/.." && pwd)
link=(-cudart shared -Xlinker "-rpath,$cuda/lib64")
jobs=${JOBS:-$(nproc)}
mkdir -p "$out" "$work/amrex-objects"

# Once with cudaMalloc, once with the pool of the driver. The compiler wrapper has an architecture that CUDA 13 lacks.
sed 's/default_arch="sm_70"/default_arch="sm_90"/' "$kokkos/bin/nvcc_wrapper" >"$work/nvcc_wrapper"
chmod +x "$work/nvcc_wrapper"
for async in OFF ON; do
	build=$work/kokkos-$async name=work_kokkos
	[ $async = OFF ] || name=work_kokkos_async
	cmake -S "$kokkos" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_STANDARD=17 \
		-DCMAKE_CXX_COMPILER="$work/nvcc_wrapper" -DCMAKE_CXX_FLAGS="-include $root/tests/gpu/cuda13.h" \
		-DKokkos_ENABLE_CUDA=ON -DKokkos_ENABLE_SERIAL=ON -DKokkos_ARCH_HOPPER90=ON -DKokkos_ENABLE_LIBDL=OFF \
		-DKokkos_ENABLE_IMPL_CUDA_MALLOC_ASYNC=$async
	ninja -C "$build" -j "$jobs" kokkoscore
	"$work/nvcc_wrapper" -DKOKKOS_DEPENDENCE -I"$build/core/src" -I"$kokkos/core/src" -I"$build" \
		-isystem "$kokkos/tpls/desul/include" -isystem "$kokkos/tpls/mdspan/include" \
		-include "$root/tests/gpu/cuda13.h" -extended-lambda -arch=sm_90 -std=c++17 -O2 \
		"$root/tests/gpu/work_kokkos.cpp" "$build/core/src/libkokkoscore.a" -lcuda "${link[@]}" -o "$out/$name"
done

# Only the sources of AMReX that the program needs. Its headers use names of CUB that CUDA 13 lacks, where they have a
# way without CUB as well.
cmake -S "$amrex" -B "$work/amrex" -G Ninja -DCMAKE_BUILD_TYPE=Release -DAMReX_GPU_BACKEND=CUDA -DAMReX_CUDA_ARCH=9.0 \
	-DAMReX_SPACEDIM=3 -DAMReX_MPI=OFF -DAMReX_FORTRAN=OFF -DAMReX_PARTICLES=OFF -DAMReX_LINEAR_SOLVERS=OFF \
	-DAMReX_AMRLEVEL=OFF -DAMReX_INSTALL=OFF
cp -r "$amrex/Src" "$work/"
sed -i 's/(__CUDACC_VER_MAJOR__ >= 11)/(__CUDACC_VER_MAJOR__ == 11 || __CUDACC_VER_MAJOR__ == 12)/' \
	"$work/Src/Base/AMReX_Scan.H" "$work/Src/Base/AMReX_GpuReduce.H"
unneeded='BCUtil|Fil[CFN][CD]_C|FilFC_C|ForkJoin|Lazy|MFCopyDescriptor|MPMD|MultiFabUtil|PlotFile|PhysBCFunct|_fi|NonLocalBC'
unneeded="$unneeded|CuptiTrace|TinyProfiler"
flags=(-include "$root/tests/gpu/cuda13.h" -DAMREX_SPACEDIM=3 "-I$work/Src/Base" "-I$work/Src/Base/Parser"
	"-I$work/Src/Boundary" "-I$work/amrex" -O2 -DNDEBUG -gencode "arch=compute_90,code=sm_90" --expt-relaxed-constexpr
	--expt-extended-lambda -w -maxrregcount=255 -std=c++17 -x cu -rdc=true)
compile() {
	nvcc "${flags[@]}" -c "$1" -o "$work/amrex-objects/$(basename "$1" .cpp).o"
}
running=0
for source in "$work"/Src/Base/*.cpp "$work"/Src/Base/Parser/*.cpp "$root/tests/gpu/work_amrex.cpp"; do
	[[ $(basename "$source") =~ $unneeded ]] && continue
	compile "$source" &
	running=$((running + 1))
	[ $running -lt "$jobs" ] || { wait -n; running=$((running - 1)); }
done
while [ $running -gt 0 ]; do
	wait -n
	running=$((running - 1))
done
nvcc -arch=sm_90 -rdc=true "$work"/amrex-objects/*.o -lcurand "${link[@]}" -o "$out/work_amrex"
strip "$out"/work_*
ls -l "$out"/work_*
