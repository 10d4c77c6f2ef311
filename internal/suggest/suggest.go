// Package suggest finds what was meant by a name that does not exist.
package suggest

import "strings"

// Closest is the one of these names that was probably meant by another, the
// first of several; "" if there is none. It is the same but for case, dashes
// and two letters (in short names one or none) put in, taken out or changed.
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

// distance is how many letters must be put in, taken out or changed to make b
// of a: the Levenshtein distance.
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
