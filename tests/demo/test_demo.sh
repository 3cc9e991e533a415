#!/bin/sh
# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
#
# Usage: test_demo.sh DEMO LIBGPUPOOL SCRIPTS, with the simulated GPU in LD_LIBRARY_PATH.

set -u
demo=$1 library=$(realpath "$2") scripts=$3
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
unset LD_PRELOAD
n=0

# check NAME COMMAND...: the command succeeds
check() {
	name=$1
	shift
	n=$((n + 1))
	if "$@"; then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name"
		sed 's/^/# /' "$tmp/err"
	fi
}

# run EXIT_STATUS [NAME=VALUE...] PROGRAM ARGUMENT...: the program ends with that status; its output is in $tmp
run() {
	expected=$1
	shift
	env "$@" >"$tmp/out" 2>"$tmp/err"
	status=$?
	[ "$status" -eq "$expected" ]
}

# has_text FILE TEXT: the output has the text
has_text() {
	grep -qF -- "$2" "$tmp/$1"
}

checksum() {
	sed -n 's/^checksum *//p' "$tmp/out"
}

# succeeds_with_same_checksum [NAME=VALUE...] PROGRAM ARGUMENT...: the program succeeds, with the checksum of the run
# without gpupool
succeeds_with_same_checksum() {
	run 0 "$@" && [ "$(checksum)" = "$raw" ] && [ ! -s "$tmp/err" ]
}

# With this fault the program fails without gpupool, so that its success shows that gpupool was loaded.
few_allocations='SIMGPU_FAULT=cuMemAlloc_v2:200+=2'

# make_tool NAME LINE...: a program for the PATH of the test, a shell script with these lines
make_tool() {
	tool=$tmp/bin/$1
	shift
	printf '%s\n' '#!/bin/sh' "$@" >"$tool"
	chmod +x "$tool"
}

# builds_on_a_terminal: the demo fails to build, with programs that only print, on a terminal of its own
builds_on_a_terminal() {
	mkdir "$tmp/bin" "$tmp/built"
	make_tool meson "touch '$tmp/built/build.ninja'"
	make_tool ninja 'echo "ninja: Entering directory"' 'echo "[7/9] Compiling this"' 'echo "that is wrong"' 'exit 1'
	run 1 "PATH=$tmp/bin:$PATH" script -qec "'$scripts/demo' --no-install --build-dir '$tmp/built'" /dev/null </dev/null
}

echo 1..11
check 'the demo runs without gpupool' run 0 "$demo" --steps 100 --size 64
raw=$(checksum)
[ -n "$raw" ] || raw='nothing'
check 'the demo computes the same checksum with gpupool' \
	succeeds_with_same_checksum "LD_PRELOAD=$library" "$demo" --steps 100 --size 64
run 1 "$few_allocations" "$demo" --steps 100 --size 64
check 'a failed driver call is reported with its name and error' \
	has_text err 'cuMemAlloc_v2 failed: CUDA_ERROR_OUT_OF_MEMORY (2)'
check 'the demo with gpupool survives a driver that fails from the 200th allocation on' \
	succeeds_with_same_checksum "$few_allocations" "LD_PRELOAD=$library" "$demo" --steps 100 --size 64

: >"$tmp/libcuda.so.1"
run 3 "LD_LIBRARY_PATH=$tmp" "$demo" --info
check 'a driver that cannot be loaded is reported' has_text err 'there is no NVIDIA driver here'
check 'scripts/demo has a --help' run 0 "$scripts/demo" --help
check 'scripts/install-deps has a --help' run 0 "$scripts/install-deps" --help

run 1 "$scripts/demo" --no-build --sim --build-dir "$tmp"
check 'scripts/demo --no-build without an earlier build says so' has_text err 'run scripts/demo without --no-build'

if command -v script >/dev/null && "$scripts/install-deps" --check build; then
	check 'scripts/demo fails if the build fails' builds_on_a_terminal
	check 'scripts/demo shows the steps of the build on a terminal' has_text out '  7/9 steps'
	check 'scripts/demo shows the output of a build that failed' has_text out 'that is wrong'
else
	for n in 9 10 11; do echo "ok $n # SKIP script(1) or a package for the build is missing"; done
fi
