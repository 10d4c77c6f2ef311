#!/usr/bin/env bash
# Installs what a node needs, for `svc up` to run pods: containerd, runc, the CNI
# plugins, iptables and nftables. It installs the distribution's packages if root runs it on
# Linux with apt-get; otherwise it prints what to install. More packages may be
# given as program=package, or name.pc=package for a C library with its headers.
# usage: hack/node-setup.sh [PROGRAM=PACKAGE...]
#
# It never fails: svc up then runs as a control plane only, and prints what is
# missing.
set -uo pipefail

[[ $(uname -s) == Linux && $(id -u) == 0 ]] || exit 0
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# has reports whether a program, or the set of CNI plugins, is installed.
has() {
	if [[ $1 == *.pc ]]; then
		pkg-config --exists "${1%.pc}" 2>/dev/null
		return
	fi
	if [[ $1 != cni ]]; then
		command -v "$1" >/dev/null
		return
	fi
	local dir
	for dir in /usr/lib/cni /opt/cni/bin /usr/libexec/cni; do
		[[ -x $dir/bridge && -x $dir/host-local && -x $dir/loopback ]] && return
	done
	return 1
}

missing=()
for pair in containerd=containerd runc=runc cni=containernetworking-plugins iptables=iptables nft=nftables "$@"; do
	has "${pair%%=*}" || missing+=("${pair#*=}")
done
((${#missing[@]})) || exit 0

if ! command -v apt-get >/dev/null; then
	echo "to run pods here, install what Debian calls: ${missing[*]}" >&2
	exit 0
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive

# quietly runs a command. It writes the output to the log, and prints a dot every
# two seconds.
quietly() {
	"$@" >"$log" 2>&1 </dev/null &
	local pid=$! seconds=0
	while kill -0 "$pid" 2>/dev/null; do
		sleep 0.2
		((++seconds % 10)) || printf . >&2
	done
	wait "$pid"
}

listed=
for package in "${missing[@]}"; do
	printf 'to run pods here: installing %s ..' "$package" >&2
	# The lists of packages may be old, or not there at all.
	if quietly apt-get install -y -q --no-install-recommends "$package"; then
		echo " done" >&2
	elif [[ -z $listed ]] && listed=yes && quietly apt-get update -q && quietly apt-get install -y -q --no-install-recommends "$package"; then
		echo " done" >&2
	else
		echo " failed: $(grep -m1 '^E:' "$log" || tail -n1 "$log"); install it, and start again" >&2
	fi
done
exit 0
