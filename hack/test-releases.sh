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
failed=()
for release in "${releases[@]}"; do
	echo "=== Release $release"
	SVC_RELEASE=$release go test -count=1 -timeout 30m ./test/e2e || failed+=("$release")
done
if ((${#failed[@]})); then
	echo "test-releases: failed at ${failed[*]}" >&2
	exit 1
fi
