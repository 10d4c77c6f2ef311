#!/usr/bin/env bash
# Runs the unit tests: every package but the suites that need a built binary
# (make test-e2e, make test-fleet, make test-node, make test-peers, make
# test-soak). The race detector needs a C compiler; without one the tests run
# without it.
set -euo pipefail
cd "$(dirname "$0")/.."

race=()
if command -v "${CC:-gcc}" >/dev/null; then
	export CGO_ENABLED=1
	race=(-race)
else
	echo "no C compiler: running without the race detector" >&2
fi
mapfile -t packages < <(go list ./... | grep -vE '^svc.dev/svc/test/(aggregated|e2e|spec|controllers|faults|fleet|node|peers|soak)$')
go test "${race[@]}" -timeout 30m "${packages[@]}"
