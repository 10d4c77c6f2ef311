#!/usr/bin/env bash
# Runs the specs of the end-to-end suite that hold at every release, at each of the
# releases that are named, or all that svc serves, and says which have failed.
# usage: SVC=bin/svc hack/test-releases.sh [RELEASE...]
set -euo pipefail
cd "$(dirname "$0")/.."

releases=("$@")
if ((${#releases[@]} == 0)); then
	served=$("$SVC" releases)
	mapfile -t releases < <(awk '$1 ~ /^[0-9]+\.[0-9]+$/ {print $1}' <<<"$served")
	((${#releases[@]})) || { echo "test-releases: \"$SVC releases\" lists no release" >&2; exit 1; }
fi
# The suite is linked once, which takes longer than it runs at one release.
SVC=$(realpath "$SVC")
suite=$(mktemp -d)
trap 'rm -rf "$suite"' EXIT
go test -c -o "$suite/e2e" ./test/e2e
failed=()
for release in "${releases[@]}"; do
	echo "=== Release $release"
	(cd test/e2e && SVC=$SVC SVC_RELEASE=$release "$suite/e2e" -test.timeout 30m) || failed+=("$release")
done
if ((${#failed[@]})); then
	echo "test-releases: failed at ${failed[*]}" >&2
	exit 1
fi
