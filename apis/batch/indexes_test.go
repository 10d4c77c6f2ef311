package batch

import (
	"math"
	"testing"
)

func TestOverlap(t *testing.T) {
	for _, test := range []struct {
		rule, a, b string
		index      int32
		found      bool
	}{
		{"nothing overlaps nothing", "", "1", 0, false},
		{"neighbours do not overlap", "0-2,6", "3-5,7", 0, false},
		{"an index overlaps itself", "0,4", "1,4", 4, true},
		{"an interval overlaps what is in it", "0-9", "5", 5, true},
		{"the first overlap counts", "1-3,7", "3-8", 3, true},
		{"a long interval overlaps a later one", "1,4-20", "2,6,30", 6, true},
	} {
		t.Run(test.rule, func(t *testing.T) {
			a, err := parseIndexes(test.a, math.MaxInt32)
			if err != nil {
				t.Fatal(err)
			}
			b, err := parseIndexes(test.b, math.MaxInt32)
			if err != nil {
				t.Fatal(err)
			}
			if index, found := overlap(a, b); index != test.index || found != test.found {
				t.Errorf("got %d, %t, want %d, %t", index, found, test.index, test.found)
			}
		})
	}
}

// FuzzParseIndexes checks that what is accepted is what it says: ascending
// indexes below completions.
func FuzzParseIndexes(f *testing.F) {
	for _, list := range []string{"", "1,3-5,7", "0", "-1", "1-2-3", "9999999999"} {
		f.Add(list, int32(10))
	}
	f.Fuzz(func(t *testing.T, list string, completions int32) {
		all, err := parseIndexes(list, completions)
		if err != nil {
			return
		}
		last := int32(-1)
		for _, i := range all {
			if i.from <= last || i.to < i.from || i.to >= completions {
				t.Fatalf("%q of %d gives %v", list, completions, all)
			}
			last = i.to
		}
	})
}
