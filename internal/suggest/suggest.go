// Package suggest finds the existing name that a misspelt one was meant to be.
package suggest

import (
	"errors"
	"strings"

	"github.com/spf13/pflag"
)

// Flag returns the flag that was meant if err is that flags have no flag of a name, else "".
func Flag(err error, flags *pflag.FlagSet) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return ""
	}
	var names []string
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return Closest(unknown.GetSpecifiedName(), names)
}

// Closest returns the name with the smallest edit distance to the given one, the
// first of several, or "" if none is close. Case, dashes and underscores do not
// count; up to two letters (in short names one or none) may be inserted, deleted
// or replaced.
func Closest(name string, names []string) string {
	plain := func(s string) string {
		return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(s))
	}
	best, least := "", min(3, len(name)/3+1)
	for _, candidate := range names {
		if d := distance(plain(name), plain(candidate)); d < least {
			best, least = candidate, d
		}
	}
	return best
}

// distance is the Levenshtein distance of a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // the distances of a's beginning to those of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := diagonal
			if a[i] != b[j] {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
