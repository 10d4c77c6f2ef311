#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME (default 5s), one after the other. Failing
# inputs are written to testdata/fuzz beside the target: commit them with the fix.
set -euo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# ranOut reports whether the only failure is the end of the time: Go before 1.27 may
# report that as a failure on a busy machine (go.dev/issue/75804). A failing input is
# always written.
ranOut() {
	! grep -q 'Failing input written to' "$log" &&
		[[ $(grep -A1 '^--- FAIL: ' "$log" | tail -n +2) == '    context deadline exceeded' ]]
}

git grep -nE '^func Fuzz[A-Za-z0-9_]+\(' -- '*_test.go' | while IFS= read -r hit; do
	dir=$(dirname "${hit%%:*}")
	target=$(sed -E 's/.*func (Fuzz[A-Za-z0-9_]+)\(.*/\1/' <<<"$hit")
	echo "fuzz ./$dir $target"
	go test -run='^$' -fuzz="^$target\$" -fuzztime="${FUZZTIME:-5s}" "./$dir" </dev/null 2>&1 | tee "$log" || ranOut || exit 1
done
