# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
#
# Functions for scripts that download Debian packages without installing them. Package lists and packages are kept in a
# private directory, so that the machine's own apt does not have to be configured for the architecture or the sources.
# shellcheck shell=sh

# private_apt DIR ARCHITECTURE SOURCES: makes DIR, with an apt.conf for `apt-get -c`. SOURCES are lines of a
# sources.list, or '' for the machine's own.
private_apt() {
	rm -rf "$1"
	mkdir -p "$1/lists/partial" "$1/cache/archives/partial" || return
	: >"$1/status"
	cat >"$1/apt.conf" <<-END
		APT::Architecture "$2";
		APT::Architectures "$2";
		APT::Sandbox::User "";
		Acquire::Languages "none";
		Dir::State "$1";
		Dir::State::status "$1/status";
		Dir::Cache "$1/cache";
	END
	if [ -n "$3" ]; then
		echo "$3" >"$1/sources.list"
		echo "Dir::Etc { SourceList \"$1/sources.list\"; SourceParts \"/dev/null\"; };" >>"$1/apt.conf"
	fi
}

# fetch DIR ARCHITECTURE SOURCES PACKAGE...: downloads Debian packages and unpacks them into DIR.
fetch() {
	private_apt "$1.apt" "$2" "$3" || return
	rm -rf "$1"
	mkdir -p "$1" || return
	into=$1
	shift 3
	(cd "$into.apt" && apt-get -c apt.conf -qq update && apt-get -c apt.conf -qq download "$@") || return
	for package in "$into.apt"/*.deb; do
		dpkg-deb -x "$package" "$into" || return
	done
	rm -rf "$into.apt"
}

# fetch_source DIR PACKAGE: downloads the source package of the machine's release, and unpacks it into DIR/PACKAGE-*.
fetch_source() {
	private_apt "$1.apt" "$(dpkg --print-architecture)" '' || return
	rm -rf "$1"
	mkdir -p "$1" "$1.apt/parts" || return
	# The machine's sources of binary packages, as sources of source packages.
	for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
		case $file in
		*.list) [ ! -f "$file" ] || sed -n 's/^deb /deb-src /p' "$file" >"$1.apt/parts/${file##*/}" ;;
		*.sources) sed 's/^Types:.*/Types: deb-src/' "$file" >"$1.apt/parts/${file##*/}" ;;
		esac
	done
	echo "Dir::Etc { SourceList \"/dev/null\"; SourceParts \"$1.apt/parts\"; };" >>"$1.apt/apt.conf"
	(cd "$1" && apt-get -c "$1.apt/apt.conf" -qq update && apt-get -c "$1.apt/apt.conf" -qq source "$2") || return
	rm -rf "$1.apt"
}
