#!/usr/bin/env bash
# Runs parts of the tests, each a target of make, and says how long each took. If
# one fails, the others still run, and the failed tests and their errors are repeated
# at the end of the output, which may be all that a reader has. The complete output
# is in bin/report.log.
# usage: hack/report.sh TARGET...
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p bin
: >bin/report.log
code=0 times=()
for target in "$@"; do
	began=$SECONDS verdict=ok
	"${MAKE:-make}" --no-print-directory "$target" 2>&1 | tee -a bin/report.log
	((PIPESTATUS[0] == 0)) || verdict=FAILED code=1
	times+=("$target $verdict in $((SECONDS - began))s")
done
printf -v summary '%s; ' "${times[@]}"
trap 'printf "\n=== %s\n" "${summary%; }"' EXIT
((code)) || exit 0

printf '\n=== What has failed (all of it: bin/report.log)\n'
sed $'s/\x1b\\[[0-9;]*m//g' bin/report.log | awk '
	# show prints lines first to last of what is kept, but not too many.
	function show(first, last,    i) {
		for (i = first; i <= last && i < first + 60; i++) print substr(kept[i], 1, 400)
		if (i <= last) print "  ..."
	}
	# A spec is between two lines of dashes. Its name comes first; the last time
	# that it says that it failed, it says why.
	/^-----*$/ {
		if (n > 3 && kept[1] ~ /\[(FAILED|PANICKED|TIMEDOUT|INTERRUPTED)\]/) {
			for (why = n; why > 4 && kept[why] !~ /^ *\[(FAILED|PANICKED|TIMEDOUT|INTERRUPTED)\] /; why--);
			show(1, 3); show(why, n); found++
		}
		n = 0; next
	}
	{ kept[++n] = $0 }
	# A test tells what it has to say in indented lines: with -v before its
	# verdict, else after it.
	/^--- FAIL: / {
		for (first = n; first > 1 && kept[first - 1] ~ /^ /; first--);
		show(first, n); n = 0; lines = 60; found++; next
	}
	/^(panic: |fatal error: |WARNING: DATA RACE)/ { print; lines = 60; within = 1; found++; next }
	# What does not compile, and the packages that have failed.
	/^# |^[^ ]+\.go:[0-9]+:[0-9]+: / || /^FAIL\t/ || /^make.*\*\*\* / { print; lines = within = 0; found++; next }
	/^===|^ok|^FAIL/ { lines = within = 0 }
	lines > 0 && (within || /^ /) { print substr($0, 1, 400); lines--; n = 0 }
	lines > 0 && !within && !/^ / { lines = 0 }
	END { if (!found) exit 1 }
' || tail -n 40 bin/report.log
exit "$code"
