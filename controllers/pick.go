package controllers

import (
	"fmt"
	"slices"
	"strings"

	"svc.dev/svc/controllers/controller"
)

// Pick returns those of all that the values of --controllers choose: "*" is
// every controller that is not on demand, "name" is that one, "-name" takes it
// out again, whatever the order. An error names the values that name none.
func Pick(all []controller.Controller, values []string) ([]controller.Controller, error) {
	star := slices.Contains(values, "*")
	named := map[string]bool{} // true in, false out
	for _, value := range values {
		name, out := strings.CutPrefix(value, "-")
		if value == "*" || value == "" {
			continue
		}
		i := slices.IndexFunc(all, func(c controller.Controller) bool {
			return c.Name == name || slices.Contains(c.Aliases, name)
		})
		if i < 0 {
			return nil, unknown(all, name)
		}
		if in, ok := named[all[i].Name]; ok && in == out {
			return nil, fmt.Errorf("--controllers: %q is both in and out: name it once", all[i].Name)
		}
		named[all[i].Name] = !out
	}
	var picked []controller.Controller
	for _, c := range all {
		in, ok := named[c.Name]
		if !ok {
			in = star && !c.OnDemand
		}
		if in {
			picked = append(picked, c)
		}
	}
	return picked, nil
}

// unknown is the error of a name that is no controller's.
func unknown(all []controller.Controller, name string) error {
	best, distance := "", min(2, len(name)/3)+1 // more changes make another word
	for _, c := range all {
		for _, known := range append([]string{c.Name}, c.Aliases...) {
			if d := changes(strings.ToLower(name), known); d < distance {
				best, distance = known, d
			}
		}
	}
	if best != "" {
		return fmt.Errorf("--controllers: there is no controller %q: did you mean %q?", name, best)
	}
	return fmt.Errorf("--controllers: there is no controller %q: choose from *, %s", name, strings.Join(names(all), ", "))
}

// changes is how many letters must be added, removed or replaced to make b of
// a: the Levenshtein distance.
func changes(a, b string) int {
	row := make([]int, len(b)+1) // the distances of a's beginning to those of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func names(all []controller.Controller) []string {
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return names
}
