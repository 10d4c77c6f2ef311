package manifest

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pmezard/go-difflib/difflib"
	"go.yaml.in/yaml/v3"
)

// simple are scalars that mean the same without quotes and with those of either kind.
var simple = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9./-]*$`)

// replaceScalars returns the text with the scalars that differ between the root before and
// after the change replaced where they stand, and reports whether there is nothing else.
func (d *Document) replaceScalars(before *yaml.Node) (string, bool) {
	type place struct{ line, column int }
	changed := map[place][2]string{} // the old and the new value
	var compare func(a, b *yaml.Node) bool
	compare = func(a, b *yaml.Node) bool {
		if a.Kind != b.Kind || len(a.Content) != len(b.Content) || a.ShortTag() != b.ShortTag() {
			return false
		}
		if a.Value != b.Value {
			at := place{a.Line, a.Column}
			if old, found := changed[at]; found && old[1] != b.Value || !simple.MatchString(a.Value) || !simple.MatchString(b.Value) {
				return false // another object has the alias
			}
			changed[at] = [2]string{a.Value, b.Value}
		}
		for i := range a.Content {
			if !compare(a.Content[i], b.Content[i]) {
				return false
			}
		}
		return true
	}
	if !compare(before, d.Root) {
		return "", false
	}
	source := strings.TrimPrefix(d.Text, byteOrderMark)
	var out strings.Builder
	out.WriteString(d.Text[:len(d.Text)-len(source)])
	line, column, done := 1, 1, 0
	for i := 0; i < len(source) && len(changed) > 0; {
		if values, found := changed[place{line, column}]; found {
			delete(changed, place{line, column})
			start := i
			if source[i] == '"' || source[i] == '\'' {
				start++
			}
			if !strings.HasPrefix(source[start:], values[0]) {
				return "", false
			}
			out.WriteString(source[done:start] + values[1])
			done = start + len(values[0])
		}
		r, size := utf8.DecodeRuneInString(source[i:])
		i, column = i+size, column+1
		if r == '\n' {
			line, column = line+1, 1
		}
	}
	out.WriteString(source[done:])
	return out.String(), len(changed) == 0
}

// lines returns the lines of a text, each with a newline of the given form.
func lines(text, newline string) []string {
	var list []string
	for line := range strings.Lines(text) {
		list = append(list, strings.TrimRight(line, "\r\n")+newline)
	}
	return list
}

// patch applies to the text ours the changes from base to theirs, and reports whether each
// of them has a place there. Lines that come from theirs get the given end.
func patch(base, ours, theirs, newline string) (string, bool) {
	b, o, t := lines(base, "\n"), lines(ours, "\n"), lines(theirs, "\n")
	kept, added := slices.Collect(strings.Lines(ours)), lines(theirs, newline)
	parts := [][3]int{{}}
	if items := [3][]int{items(b), items(o), items(t)}; len(items[0]) == len(items[1]) && len(items[0]) == len(items[2]) {
		for i := range items[0] {
			parts = append(parts, [3]int{items[0][i], items[1][i], items[2][i]})
		}
	}
	parts = append(parts, [3]int{len(b), len(o), len(t)})
	var patched strings.Builder
	open := false
	for i, from := range parts[:len(parts)-1] {
		to := parts[i+1]
		part, ok := patchLines(b[from[0]:to[0]], o[from[1]:to[1]], t[from[2]:to[2]], kept[from[1]:to[1]], added[from[2]:to[2]])
		if !ok {
			return "", false
		}
		for _, line := range part {
			if open {
				patched.WriteString(newline) // the text has none after its last line
			}
			patched.WriteString(line)
			open = !strings.HasSuffix(line, "\n")
		}
	}
	return patched.String(), true
}

// items returns where the items of a List begin. Compared one by one, they take a time that
// is linear in their number.
func items(list []string) []int {
	start := slices.Index(list, "items:\n") + 1
	if start == 0 || start == len(list) {
		return nil
	}
	first := slices.IndexFunc(list[start:], func(line string) bool { return strings.HasPrefix(strings.TrimLeft(line, " "), "- ") })
	if first < 0 {
		return nil
	}
	line := list[start+first]
	prefix := line[:len(line)-len(strings.TrimLeft(line, " "))] + "- "
	var found []int
	for i := start + first; i < len(list); i++ {
		if strings.HasPrefix(list[i], prefix) {
			found = append(found, i)
		}
	}
	return found
}

// patchLines is patch for lines; kept are ours and added theirs as they are printed.
func patchLines(base, ours, theirs, kept, added []string) ([]string, bool) {
	if slices.Equal(base, theirs) {
		return kept, true
	}
	place := matches(plain(base), plain(ours))
	place[-1], place[len(base)] = -1, len(ours) // the beginning and the end
	var patched []string
	o, done := 0, 0 // what is done of ours and of base
	for _, c := range difflib.NewMatcherWithJunk(base, theirs, false, nil).GetOpCodes() {
		if c.Tag == 'e' {
			continue
		}
		// A change grows by lines that it leaves until it begins and ends beside lines
		// that ours has, from lo to hi.
		i, j, k, l := c.I1, c.J1, c.I2, c.J2
		for ; !has(place, i) && !has(place, i-1); i, j = i-1, j-1 {
		}
		lo, hi := place[i], 0
		if i == k && has(place, i-1) || !has(place, i) {
			lo = place[i-1] + 1
		}
		if i == k {
			hi = lo
		} else {
			for ; !has(place, k-1) && !has(place, k); k, l = k+1, l+1 {
			}
			if hi = place[k]; has(place, k-1) {
				hi = place[k-1] + 1
			}
		}
		if i < done || j < 0 || l > len(theirs) || lo < o || hi < lo {
			return nil, false
		}
		patched = append(append(patched, kept[o:lo]...), added[j:l]...)
		o, done = hi, k
	}
	return append(patched, kept[o:]...), true
}

// plain returns lines without what the encoder does not keep: spaces within them.
func plain(list []string) []string {
	plain := make([]string, len(list))
	for i, line := range list {
		words := strings.TrimLeft(line, " ")
		plain[i] = line[:len(line)-len(words)] + strings.Join(strings.Fields(words), " ")
	}
	return plain
}

func has(place map[int]int, i int) bool {
	_, ok := place[i]
	return ok
}

// matches returns where lines of base are in other.
func matches(base, other []string) map[int]int {
	found := map[int]int{}
	for _, block := range difflib.NewMatcherWithJunk(base, other, false, nil).GetMatchingBlocks() {
		for i := range block.Size {
			found[block.A+i] = block.B + i
		}
	}
	return found
}
