package batch

import (
	"fmt"
	"strconv"
	"strings"
)

// interval is a range of completion indexes, both ends included.
type interval struct{ from, to int32 }

// parseIndexes reads a list of completion indexes as the status of an indexed
// job has it: ascending numbers and ranges below completions, such as
// "1,3-5,7".
func parseIndexes(list string, completions int32) ([]interval, error) {
	if list == "" {
		return nil, nil
	}
	var all []interval
	for _, text := range strings.Split(list, ",") {
		i, err := parseInterval(text, completions)
		if err != nil {
			return nil, err
		}
		if n := len(all); n > 0 && all[n-1].to >= i.from {
			return nil, fmt.Errorf("non-increasing order, previous: %d, current: %d", all[n-1].to, i.from)
		}
		all = append(all, i)
	}
	return all, nil
}

func parseInterval(text string, completions int32) (interval, error) {
	ends := strings.Split(text, "-")
	if len(ends) > 2 {
		return interval{}, fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most two parts separated by '-'", text)
	}
	from, err := parseIndex(ends[0], completions)
	if err != nil || len(ends) == 1 {
		return interval{from, from}, err
	}
	to, err := parseIndex(ends[1], completions)
	if err != nil {
		return interval{}, err
	}
	if from >= to {
		return interval{}, fmt.Errorf("non-increasing order, previous: %d, current: %d", from, to)
	}
	return interval{from, to}, nil
}

func parseIndex(text string, completions int32) (int32, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("cannot convert string to integer for index: %q", text)
	}
	if n >= int(completions) {
		return 0, fmt.Errorf("too large index: %q", text)
	}
	return int32(n), nil
}

// countIndexes returns the number of indexes in the intervals.
func countIndexes(all []interval) int32 {
	var total int32
	for _, i := range all {
		total += i.to - i.from + 1
	}
	return total
}

// overlap finds the first index that is in both lists of ascending intervals.
func overlap(a, b []interval) (index int32, found bool) {
	for len(a) > 0 && len(b) > 0 {
		if first := max(a[0].from, b[0].from); first <= min(a[0].to, b[0].to) {
			return first, true
		}
		if a[0].to < b[0].to {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return 0, false
}
