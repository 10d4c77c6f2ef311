package decide

import (
	"fmt"
	"slices"
	"testing"
)

func TestIndexesAreWrittenAsTheAPIHasThem(t *testing.T) {
	for _, tt := range []struct {
		list []int
		want string
	}{
		{nil, ""},
		{[]int{3}, "3"},
		{[]int{4, 3}, "3,4"},
		{[]int{5, 3, 4, 4}, "3-5"},
		{[]int{0, 2, 3, 4, 6, 7, 9}, "0,2-4,6,7,9"},
	} {
		if got := IndexesOf(tt.list...).String(); got != tt.want {
			t.Errorf("%v: got %q, want %q", tt.list, got, tt.want)
		}
	}
}

func TestReadingIndexes(t *testing.T) {
	for _, tt := range []struct {
		rule, list, want string
		completions      int
	}{
		{"nothing", "", "", 10},
		{"numbers and ranges", "1,3-5,7", "1,3-5,7", 10},
		{"neighbours become a range", "1,2,3", "1-3", 10},
		{"indexes beyond completions are left out", "1,3-5,7", "1,3,4", 5},
		{"what cannot be read is left out", "1,x,3-y,7", "1,7", 10},
	} {
		if got := ParseIndexes(tt.list, tt.completions).String(); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.rule, got, tt.want)
		}
	}
}

// TestSetsOfIndexes compares all pairs of small sets with sets of numbers.
func TestSetsOfIndexes(t *testing.T) {
	const n = 6
	numbers := func(bits int) (all []int) {
		for i := range n {
			if bits>>i&1 == 1 {
				all = append(all, i)
			}
		}
		return all
	}
	for a := range 1 << n {
		s := IndexesOf(numbers(a)...)
		if s.Count() != len(numbers(a)) {
			t.Errorf("%s: the count is %d", s, s.Count())
		}
		for i := range n {
			if s.has(i) != (a>>i&1 == 1) {
				t.Errorf("%s has %d: %v", s, i, s.has(i))
			}
			outside := numbers(^a & (1<<n - 1))
			if want := outside[:min(i, len(outside))]; !slices.Equal(s.firstOutside(i, n), want) {
				t.Errorf("the first %d outside of %s: got %v, want %v", i, s, s.firstOutside(i, n), want)
			}
		}
		for b := range 1 << n {
			other := IndexesOf(numbers(b)...)
			if got, want := fmt.Sprint(s.Union(other)), fmt.Sprint(IndexesOf(numbers(a|b)...)); got != want {
				t.Errorf("%s and %s: got %s, want %s", s, other, got, want)
			}
			if got, want := s.common(other), len(numbers(a&b)); got != want {
				t.Errorf("%s and %s have %d in common, not %d", s, other, want, got)
			}
		}
	}
}
