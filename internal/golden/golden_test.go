package golden

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// TestRun plays the scripts of testdata against an adder:
//
//	add N...    adds numbers, those of the continuation lines too
//	show        prints the sum
//	quote       prints the continuation lines, quoted
func TestRun(t *testing.T) { Run(t, newAdder) }

func newAdder(t *testing.T) Handler {
	sum := 0
	return func(c Command) string {
		switch c.Name {
		case "add":
			for _, word := range append(c.Args, strings.Fields(c.Body)...) {
				n, err := strconv.Atoi(word)
				if err != nil {
					t.Fatal(err)
				}
				sum += n
			}
		case "show":
			return fmt.Sprint(sum)
		case "quote":
			return fmt.Sprintf("%q\n\n%q", c.Text, c.Body)
		default:
			t.Fatalf("Unknown command %q", c.Name)
		}
		return ""
	}
}

func TestOutputIsReplaced(t *testing.T) {
	for _, test := range []struct{ name, script, want string }{
		{"missing output is added", "add 1\nshow\n", "add 1\nshow\n-- 1\n"},
		{"stale output is removed", "add 1\n-- 1\n-- 2\nshow\n-- 1\n", "add 1\nshow\n-- 1\n"},
		{"wrong output is corrected", "add 1\nshow\n-- 2\n", "add 1\nshow\n-- 1\n"},
		{"comments, blank lines and cases are kept", "# c\n\n== one\nadd 1\n\n== two\nshow\n", "# c\n\n== one\nadd 1\n\n== two\nshow\n-- 0\n"},
		{"a last line may lack its end", "show", "show\n-- 0\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := play(t, test.script, newAdder); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
