#!/usr/bin/env bash
# Checks what `make generate`, `go mod tidy` and gofmt would change. It fails
# with the difference and the command that fixes it.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
complain() { echo "verify: $*" >&2; failed=1; }

unformatted=$(git ls-files '*.go' | grep -v '/zz_generated' | xargs gofmt -l)
[[ -z $unformatted ]] || complain "not formatted, run gofmt -w on:"$'\n'"$unformatted"

while IFS= read -r mod; do
	(cd "$(dirname "$mod")" && go mod tidy -diff) || complain "$mod is not tidy: run go mod tidy in $(dirname "$mod")"
done < <(git ls-files 'go.mod' '**/go.mod')

# Prometheus' parser rather than promtool, which links every service discovery and
# takes much longer to build.
go -C hack/tools/monitoring test ./... >&2 || complain "a query in config/components/monitoring is invalid"

go -C hack/tools/image test ./... >&2 || complain "the builder of the container image is broken"

hack/generate.sh
generated=(':(glob)**/zz_generated*' docs/reference)
if [[ -n $(git status --porcelain -- "${generated[@]}") ]]; then
	git --no-pager diff --stat -- "${generated[@]}"
	complain "generated code is out of date: run make generate and commit the result"
fi
exit $failed
