#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME (default 5s), one after the other. What a
# target finds is written to testdata/fuzz beside it: commit it with the fix.
set -euo pipefail
cd "$(dirname "$0")/.."

git grep -nE '^func Fuzz[A-Za-z0-9_]+\(' -- '*_test.go' | while IFS= read -r hit; do
	dir=$(dirname "${hit%%:*}")
	target=$(sed -E 's/.*func (Fuzz[A-Za-z0-9_]+)\(.*/\1/' <<<"$hit")
	echo "fuzz ./$dir $target"
	go test -run='^$' -fuzz="^$target\$" -fuzztime="${FUZZTIME:-5s}" "./$dir" </dev/null
done
