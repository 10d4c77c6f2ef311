// Package expand owns the expansion of $(NAME) references to variables in the
// commands, arguments, variables and paths of containers.
package expand

import (
	"fmt"
	"slices"
	"strings"
)

// Text replaces the references "$(NAME)" by the values of variables. "$$" is a
// dollar sign, so that "$$(NAME)" is the text "$(NAME)"; any other dollar sign,
// and an incomplete reference, is left unchanged.
func Text(text string, value func(name string) string) string {
	if !strings.Contains(text, "$") {
		return text
	}
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		out.WriteString(before)
		switch {
		case !found:
			return out.String()
		case strings.HasPrefix(after, "$"):
			out.WriteByte('$')
			text = after[1:]
			continue
		case strings.HasPrefix(after, "("):
			if name, rest, ends := strings.Cut(after[1:], ")"); ends {
				out.WriteString(value(name))
				text = rest
				continue
			}
		}
		out.WriteByte('$')
		text = after
	}
}

// Lookup returns a function that finds variables in the first environment that has
// them; a reference to an unknown variable is left unchanged.
func Lookup(environments ...map[string]string) func(name string) string {
	return func(name string) string {
		for _, environment := range environments {
			if value, known := environment[name]; known {
				return value
			}
		}
		return "$(" + name + ")"
	}
}

// Words expands each word of a command.
func Words(words []string, value func(name string) string) []string {
	if len(words) == 0 {
		return nil
	}
	expanded := make([]string, len(words))
	for i, word := range words {
		expanded[i] = Text(word, value)
	}
	return expanded
}

// Strictly expands a path (subPathExpr) as Text does, but a variable without a
// value is an error.
func Strictly(text string, environment map[string]string) (string, error) {
	var missing []string
	expanded := Text(text, func(name string) string {
		value := environment[name]
		if value == "" && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
		return value
	})
	if len(missing) > 0 {
		slices.Sort(missing)
		return "", fmt.Errorf("missing value for %s", strings.Join(missing, ", "))
	}
	return expanded, nil
}
