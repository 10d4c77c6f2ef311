#!/usr/bin/env bash
# Runs the unit tests: every package but the suites that need a built binary
# (make test-suites, make test-fleet, make test-peers), and the comparisons that
# would only be skipped.
#
# They run with the race detector, which needs a C compiler; without one they run
# without it. So do the packages that start no goroutine and wait for none, of which
# it could report nothing: it makes them several times slower.
set -euo pipefail
cd "$(dirname "$0")/.."

suites='^svc.dev/svc/test/(aggregated(/deployed)?|e2e|spec|controllers|faults|fleet|node|peers(/conformance|/proxy|/release|/skew)?|soak) '
# What runs several goroutines, or is given to a library or a test package that does.
concurrent='^\s*go [a-z]|\.Go\(|\bchan\b|AfterFunc|t\.Parallel\(|registrytest\.|etcd\.Start|"(sync|sync/atomic|net|net/http|net/http/httptest|testing/synctest|k8s\.io/client-go/(informers|kubernetes|tools)(/[^"]*)?|svc\.dev/svc/[^"]*test)"'

tested=$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' ./...)
alone=() together=()
while read -r package dir; do
	[[ ! "$package " =~ $suites ]] || continue
	if grep -qE "$concurrent" "$dir"/*.go; then
		together+=("$package")
	else
		alone+=("$package")
	fi
done <<<"$tested"

if command -v "${CC:-gcc}" >/dev/null; then
	failed=
	go test -timeout 30m "${alone[@]}" || failed=true
	CGO_ENABLED=1 go test -race -timeout 30m "${together[@]}" || failed=true
	[[ -z $failed ]]
else
	echo "no C compiler: running without the race detector" >&2
	go test -timeout 30m "${alone[@]}" "${together[@]}"
fi
