// Package expand owns the expansion of $(NAME) references to variables in the
// commands, arguments, variables and paths of containers.
package expand

import (
	"fmt"
	"slices"
	"strings"
)

// MaxLength is the largest number of bytes that the expanded texts of an environment, or those of
// a command, may have together: that of a message to a container runtime. Values that refer to
// each other could grow without end.
const MaxLength = 16 << 20

// errTooLong is the error of texts that are longer than their limit.
var errTooLong = fmt.Errorf("the references $(NAME) make more than %d MiB of text", MaxLength>>20)

// Text replaces the references "$(NAME)" by the values of variables. "$$" is a
// dollar sign, so that "$$(NAME)" is the text "$(NAME)"; any other dollar sign,
// and an incomplete reference, is left unchanged. It returns an error if the result is longer
// than limit and than the text.
func Text(text string, value func(name string) string, limit int) (string, error) {
	if !strings.Contains(text, "$") {
		return text, nil
	}
	limit = max(limit, len(text))
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		if out.WriteString(before); out.Len() > limit {
			return "", errTooLong
		}
		switch {
		case !found:
			return out.String(), nil
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

// Words expands each word of a command, of MaxLength together.
func Words(words []string, value func(name string) string) ([]string, error) {
	if len(words) == 0 {
		return nil, nil
	}
	expanded, left := make([]string, len(words)), MaxLength
	for i, word := range words {
		var err error
		if expanded[i], err = Text(word, value, left); err != nil {
			return nil, err
		}
		left -= len(expanded[i])
	}
	return expanded, nil
}

// Strictly expands a path (subPathExpr) as Text does, but a variable without a
// value is an error.
func Strictly(text string, environment map[string]string) (string, error) {
	var missing []string
	expanded, err := Text(text, func(name string) string {
		value := environment[name]
		if value == "" && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
		return value
	}, MaxLength)
	if err != nil {
		return "", err
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return "", fmt.Errorf("missing value for %s", strings.Join(missing, ", "))
	}
	return expanded, nil
}
