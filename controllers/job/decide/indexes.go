package decide

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// interval is a range of completion indexes, both ends included.
type interval struct{ from, to int }

// Indexes is a set of completion indexes: ascending intervals that neither
// overlap nor touch.
type Indexes []interval

// IndexesOf returns the set of the given indexes, and sorts them.
func IndexesOf(list ...int) Indexes {
	slices.Sort(list)
	var set Indexes
	for _, i := range list {
		set = set.append(interval{i, i})
	}
	return set
}

// append adds an interval that does not begin before the last one.
func (s Indexes) append(i interval) Indexes {
	if n := len(s); n > 0 && i.from <= s[n-1].to+1 {
		s[n-1].to = max(s[n-1].to, i.to)
		return s
	}
	return append(s, i)
}

// ParseIndexes parses a list of a job's status, such as "1,3-5,7". It ignores
// indexes beyond completions, as the job may have been scaled down, and invalid
// parts.
func ParseIndexes(list string, completions int) Indexes {
	var set Indexes
	for text := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(text, "-")
		from, err := strconv.Atoi(first)
		if err != nil {
			continue
		}
		to := from
		if isRange {
			if to, err = strconv.Atoi(last); err != nil {
				continue
			}
		}
		if from < completions {
			set = set.append(interval{from, min(to, completions-1)})
		}
	}
	return set
}

// Union returns the indexes of both sets.
func (s Indexes) Union(other Indexes) Indexes {
	all := slices.Concat(s, other)
	slices.SortFunc(all, func(a, b interval) int { return a.from - b.from })
	var set Indexes
	for _, i := range all {
		set = set.append(i)
	}
	return set
}

func (s Indexes) has(index int) bool {
	_, found := slices.BinarySearchFunc(s, index, func(i interval, index int) int {
		switch {
		case i.to < index:
			return -1
		case i.from > index:
			return 1
		}
		return 0
	})
	return found
}

// Count is the number of indexes.
func (s Indexes) Count() int {
	n := 0
	for _, i := range s {
		n += i.to - i.from + 1
	}
	return n
}

// common is the number of indexes that are in both sets.
func (s Indexes) common(other Indexes) int {
	n := 0
	for len(s) > 0 && len(other) > 0 {
		n += max(0, min(s[0].to, other[0].to)-max(s[0].from, other[0].from)+1)
		if s[0].to < other[0].to {
			s = s[1:]
		} else {
			other = other[1:]
		}
	}
	return n
}

// firstOutside returns the first n indexes below completions that are not in s.
// Its cost does not grow with completions.
func (s Indexes) firstOutside(n, completions int) []int {
	var outside []int
	next := 0
	for _, i := range append(slices.Clone(s), interval{completions, completions}) {
		for ; next < min(i.from, completions) && len(outside) < n; next++ {
			outside = append(outside, next)
		}
		next = max(next, i.to+1)
	}
	return outside
}

// String formats the set as in a job's status: intervals of three or more
// indexes as "first-last".
func (s Indexes) String() string {
	var parts []string
	for _, i := range s {
		switch i.to - i.from {
		case 0:
			parts = append(parts, strconv.Itoa(i.from))
		case 1:
			parts = append(parts, fmt.Sprintf("%d,%d", i.from, i.to))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", i.from, i.to))
		}
	}
	return strings.Join(parts, ",")
}
