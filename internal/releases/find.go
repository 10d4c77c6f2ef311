package releases

import (
	"fmt"
	"strings"
	"sync"
)

// FindType returns a type of the table of this binary, by package.name, or nil. It
// parses only that type: a server needs few of them, and not at its start.
func FindType(name string) *Type {
	// Types and enumerations are in one order, by name.
	low, high := startOfTypes(), len(text)
	for low < high {
		at := lineOfType(text, low+(high-low)/2, low)
		end := nextType(text, at)
		switch found := nameOfType(text[at:]); {
		case found == name:
			return mustParse(text[at:end]).types[name]
		case found < name:
			low = end
		default:
			high = at
		}
	}
	return nil
}

// mustParse parses a part of the text of this binary, which a test parses.
func mustParse(part string) *Table {
	t, err := parse(part)
	if err != nil {
		panic(fmt.Sprintf("table of releases: %v", err))
	}
	return t
}

// startOfTypes returns where the first type or enumeration begins.
var startOfTypes = sync.OnceValue(func() int {
	start := len(text)
	for _, word := range []string{"\ntype ", "\nenum "} {
		if i := strings.Index(text, word); i >= 0 {
			start = min(start, i+1)
		}
	}
	return start
})

// lineOfType returns where the type or enumeration begins to which the offset belongs,
// which is not before first.
func lineOfType(text string, offset, first int) int {
	for at := offset; at > first; at-- {
		if text[at-1] == '\n' && text[at] != ' ' {
			return at
		}
	}
	return first
}

// nextType returns where the type after the one at an offset begins, or the end.
func nextType(text string, at int) int {
	for {
		end := strings.IndexByte(text[at:], '\n')
		if end < 0 {
			return len(text)
		}
		at += end + 1
		if at == len(text) || text[at] != ' ' {
			return at
		}
	}
}

// nameOfType returns the second word of a line.
func nameOfType(line string) string {
	_, name, _ := strings.Cut(line, " ")
	return name[:max(0, strings.IndexAny(name, " \n"))]
}
