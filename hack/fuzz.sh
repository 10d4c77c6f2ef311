#!/usr/bin/env bash
# Runs every fuzz target, one after the other. Failing inputs are written to
# testdata/fuzz beside the target: commit them with the fix.
#
# Without FUZZTIME each target runs for 2 seconds, with inputs that are changed at
# random: that needs no instrumented build of all libraries, which takes longer than
# the run itself. With FUZZTIME (FUZZTIME=10m) coverage guides the inputs.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$work/log

# ranOut reports whether the only failure is the end of the time: Go before 1.27 may
# report that as a failure on a busy machine (go.dev/issue/75804). A failing input is
# always written.
ranOut() {
	! grep -q 'Failing input written to' "$log" &&
		[[ $(grep -A1 '^--- FAIL: ' "$log" | tail -n +2) == '    context deadline exceeded' ]]
}

mapfile -t targets < <(git grep -nE '^func Fuzz[A-Za-z0-9_]+\(' -- '*_test.go' | sed -E 's|^(.*)/[^/]*:[0-9]+:func (Fuzz[A-Za-z0-9_]+)\(.*|\1 \2|')

for target in "${targets[@]}"; do
	read -r dir name <<<"$target"
	echo "fuzz ./$dir $name"
	if [[ -n ${FUZZTIME:-} ]]; then
		run=(go test -run='^$' -fuzz="^$name\$" -fuzztime="$FUZZTIME" "./$dir")
	else
		binary=$work/${dir//\//_}.test
		[[ -x $binary ]] || go test -c -ldflags='-s -w' -o "$binary" "./$dir"
		run=(env -C "$dir" "$binary" -test.run='^$' -test.fuzz="^$name\$" -test.fuzztime=2s -test.fuzzcachedir="$work/cache")
	fi
	if ! "${run[@]}" </dev/null 2>&1 | tee "$log" | { grep --line-buffered '^fuzz: elapsed' || true; } && ! ranOut; then
		cat "$log"
		exit 1
	fi
done
