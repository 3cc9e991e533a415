# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
#
# fish completion for gpupool-stat and gpupool-run. Commands, options and process ids come from the output of the programs.

# Prints the options that --help lists: -q, --quiet, --by=...
function __gpupool_options
	$argv --help 2>/dev/null | sed -n 's/^  *\(-[^ ]*\)\(,* --[^ ]*\)\{0,1\}.*/\1 \2/p' | \
		tr -s ', ' '\n' | sed -n 's/^\(--*[a-zA-Z-]*=\{0,1\}\).*/\1/p'
end

function __gpupool_stat_commands
	gpupool-stat --help 2>/dev/null | string match -r '^  [a-z]+ .*' | string replace -r '^  ([a-z]+) .*' '$1'
end

function __gpupool_stat_command
	for word in (commandline -opc)[2..-1]
		if string match -q -r '^[a-z]' -- $word
			echo $word
			return
		end
	end
	return 1
end

complete -c gpupool-stat -f
complete -c gpupool-stat -n 'not __gpupool_stat_command' -a '(__gpupool_stat_commands)'
complete -c gpupool-stat -n 'contains -- (__gpupool_stat_command) help' -a '(__gpupool_stat_commands)'
complete -c gpupool-stat -n 'not string match -q -- "-*" (commandline -ct)' -a '(gpupool-stat list -q 2>/dev/null)'
complete -c gpupool-stat -n 'string match -q -- "-*" (commandline -ct)' -a '(__gpupool_options gpupool-stat (__gpupool_stat_command))'
complete -c gpupool-stat -n 'contains -- (__gpupool_stat_command) advise replay convert report' -F
complete -c gpupool-run -n 'string match -q -- "-*" (commandline -ct)' -a '(__gpupool_options gpupool-run)'
complete -c gpupool-run -n 'not string match -q -- "-*" (commandline -ct)' -a '(__fish_complete_subcommand)'
