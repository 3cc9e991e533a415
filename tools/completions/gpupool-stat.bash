# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
#
# bash completion for gpupool-stat and gpupool-run. Commands, options and process ids come from the output of the programs.

# Prints the options that --help lists: -q, --quiet, --by=...
_gpupool_options() {
	"$@" --help 2>/dev/null | sed -n 's/^  *\(-[^ ]*\)\(,* --[^ ]*\)\{0,1\}.*/\1 \2/p' |
		tr -s ', ' '\n' | sed -n 's/^\(--*[a-zA-Z-]*=\{0,1\}\).*/\1/p'
}

_gpupool_stat_commands() {
	gpupool-stat --help 2>/dev/null | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p'
}

_gpupool_stat() {
	local word=${COMP_WORDS[COMP_CWORD]} command='' i
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		[a-z]*) command=${COMP_WORDS[i]} && break ;;
		esac
	done
	local words
	case $word in
	-*) words=$(_gpupool_options gpupool-stat $command) ;;
	*) words=$([ "$command" = help ] || gpupool-stat list -q 2>/dev/null) ;;
	esac
	if [ -z "$command" ] || [ "$command" = help ]; then
		words="$words $(_gpupool_stat_commands)"
	fi
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
	if [ "${#COMPREPLY[@]}" -eq 1 ] && [[ ${COMPREPLY[0]} == *= ]]; then
		compopt -o nospace 2>/dev/null
	fi
	case $command in
	advise | replay | convert | report) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$word") ;;
	esac
}

_gpupool_run() {
	local word=${COMP_WORDS[COMP_CWORD]} i
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		-*) ;;
		*)
			if declare -F _command_offset >/dev/null; then
				_command_offset "$i"
			else
				mapfile -t COMPREPLY < <(compgen -f -- "$word")
			fi
			return
			;;
		esac
	done
	case $word in
	-*) mapfile -t COMPREPLY < <(compgen -W "$(_gpupool_options gpupool-run)" -- "$word") ;;
	*) mapfile -t COMPREPLY < <(compgen -c -- "$word") ;;
	esac
	if [ "${#COMPREPLY[@]}" -eq 1 ] && [[ ${COMPREPLY[0]} == *= ]]; then
		compopt -o nospace 2>/dev/null
	fi
}

complete -F _gpupool_stat gpupool-stat
complete -F _gpupool_run gpupool-run
