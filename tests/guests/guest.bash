# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
#
# Usage: bash guest.bash SCENARIO. The output depends only on the shell and on a CUDA program, $GUEST.

set -u

# Prints the descriptors of a process that the shell starts, without the one that ls opens.
list_descriptors() {
	ls /proc/self/fd | head -n -1 | tr '\n' ' '
	echo
}

pipelines() {
	seq 1000 | grep 7 | sort -rn | head -n 3
	echo "${PIPESTATUS[*]}"
	set -o pipefail
	false | true
	echo $?
	printf 'b\na\n' | while read -r word; do echo "<$word>"; done | sort
	yes | head -n 2
	# There is no reader, so a signal ends the writer.
	(trap - PIPE; yes) | true
	echo "${PIPESTATUS[*]}"
	seq 100000 | tee >(wc -l >&2) | tail -n 1
	wait
	diff <(seq 3) <(seq 4)
	echo $?
}

subshells() {
	local value=1
	(value=2; exit 3)
	echo $? $value
	value=$(echo one; echo two >&2; exit 4)
	echo $? "$value"
	echo "$(echo "$(echo "$(echo deep)")")"
	{ echo grouped; } | cat
	echo "$BASH_SUBSHELL $(echo "$BASH_SUBSHELL" "$(echo "$BASH_SUBSHELL")")"
	coproc cat
	echo through >&"${COPROC[1]}"
	read -r value <&"${COPROC[0]}"
	echo "$value"
	exec {COPROC[1]}>&-
	wait
	exec -a another sh -c 'echo $0'
}

documents() {
	local name=here
	cat <<-END
		$name and $(echo there)
	END
	cat <<'END'
$name as it is
END
	cat <<<"$name is a string"
	exec 7<<<"kept open"
	cat <&7
	list_descriptors
	exec 7<&-
	list_descriptors
	exec 8>file
	echo in the file >&8
	exec 8>&-
	cat file
	rm file
}

jobs_and_signals() {
	set -m
	sleep 100 &
	jobs -r | sed 's/[0-9]\{3,\}//'
	kill -STOP %1
	kill -CONT %1
	kill %1
	wait %1 2>/dev/null
	echo $?
	set +m
	sh -c 'exit 7' &
	wait $!
	echo $?
	sh -c 'kill -9 $$' &
	wait $! 2>/dev/null
	echo $?
	# By number: wait -n fails for a job that ended before the next one began.
	local sum=0 ids=()
	for i in 1 2 3; do
		(exit $i) &
		ids+=($!)
	done
	for i in "${ids[@]}"; do
		wait "$i"
		sum=$((sum + $?))
	done
	echo $sum
}

traps() {
	trap 'echo usr1' USR1
	trap 'echo at the end, $?' EXIT
	trap 'echo child' CHLD
	trap 'echo error' ERR
	kill -USR1 $$
	set -m
	true & wait $!
	set +m
	trap - CHLD
	false
	(trap 'echo inner end' EXIT; exit 5)
	trap '' TERM
	kill -TERM $$
	trap 'echo asked to end; exit 6' USR2
	kill -USR2 $$
	echo not reached
}

cuda() {
	"$GUEST" fork-then-exec | sort
	echo "${PIPESTATUS[*]}"
	"$GUEST" after-exec | head -n 1
	echo "$("$GUEST" after-exec | wc -l)"
	"$GUEST" after-exec >/dev/null &
	"$GUEST" after-exec >/dev/null &
	wait -n
	echo $?
	wait -n
	echo $?
	(exec "$GUEST" after-exec)
	for i in 1 2 3; do "$GUEST" nothing 2>/dev/null || echo $?; done
	"$GUEST" after-exec >&- && echo closed
	"$GUEST" after-exec <&- 2>&- | tail -n 1
	env -i LD_LIBRARY_PATH="$LD_LIBRARY_PATH" "$GUEST" after-exec
	cd / && "$GUEST" after-exec | tail -n 1
	# Runs in the background and is killed. Without these settings it would leave its socket behind.
	GPUPOOL_RUNTIME_DIR= TMPDIR=/nowhere "$GUEST" endless >/dev/null &
	kill $!
	wait $! 2>/dev/null
	echo $?
	list_descriptors
}

process() {
	list_descriptors
	grep -E 'Threads|SigBlk|SigIgn|SigCgt|Umask' /proc/self/status
	umask
	pwd
	ulimit -a
	env | grep -v -E '^(LD_PRELOAD|_)='
	echo "$(grep -c libcuda /proc/self/maps)"
}

"$1"
