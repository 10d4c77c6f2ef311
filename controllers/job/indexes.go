package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// interval is a range of completion indexes, both ends included.
type interval struct{ from, to int }

// indexes is a set of completion indexes: ascending intervals that neither
// overlap nor touch.
type indexes []interval

// indexesOf is the set of the given indexes, which it sorts.
func indexesOf(list ...int) indexes {
	slices.Sort(list)
	var set indexes
	for _, i := range list {
		set = set.append(interval{i, i})
	}
	return set
}

// append adds an interval that begins no earlier than the last one.
func (s indexes) append(i interval) indexes {
	if n := len(s); n > 0 && i.from <= s[n-1].to+1 {
		s[n-1].to = max(s[n-1].to, i.to)
		return s
	}
	return append(s, i)
}

// parseIndexes reads what a job's status says of indexes, such as "1,3-5,7". It
// leaves out indexes beyond completions, as the job may have been scaled down,
// and what it cannot read.
func parseIndexes(list string, completions int) indexes {
	var set indexes
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

// union is the set of all that is in s or in other.
func (s indexes) union(other indexes) indexes {
	all := slices.Concat(s, other)
	slices.SortFunc(all, func(a, b interval) int { return a.from - b.from })
	var set indexes
	for _, i := range all {
		set = set.append(i)
	}
	return set
}

func (s indexes) has(index int) bool {
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

// count is the number of indexes.
func (s indexes) count() int {
	n := 0
	for _, i := range s {
		n += i.to - i.from + 1
	}
	return n
}

// common is the number of indexes that are in both sets.
func (s indexes) common(other indexes) int {
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

// firstOutside are the first n indexes below completions that are not in s. Its
// cost does not grow with completions.
func (s indexes) firstOutside(n, completions int) []int {
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

// String is the form that parseIndexes reads. Two neighbours are written apart.
func (s indexes) String() string {
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
