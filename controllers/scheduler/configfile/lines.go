package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// lines finds the lines of fields in a file.
type lines struct{ root *yaml.Node }

func newLines(data []byte) (*lines, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, errors.New("is empty: it needs at least an apiVersion and a kind")
	} else if err != nil {
		return nil, err
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("line %d: holds a second document: leave one", second.Line)
	}
	return &lines{document.Content[0]}, nil
}

var step = regexp.MustCompile(`[^.\[\]]+`)

// of returns the line of a field, or of the nearest one above that is there.
func (l *lines) of(path string) int {
	node, line := l.root, l.root.Line
	for _, name := range step.FindAllString(path, -1) {
		for node.Kind == yaml.AliasNode {
			node = node.Alias
		}
		next := (*yaml.Node)(nil)
		switch i, err := strconv.Atoi(name); {
		case node.Kind == yaml.SequenceNode && err == nil && i < len(node.Content):
			next = node.Content[i]
			line = next.Line
		case node.Kind == yaml.MappingNode:
			for j := 0; j+1 < len(node.Content); j += 2 {
				if node.Content[j].Value == name {
					next, line = node.Content[j+1], node.Content[j].Line
				}
			}
		}
		if next == nil {
			return line
		}
		node = next
	}
	return line
}

// fields returns errors with their lines.
func (l *lines) fields(list field.ErrorList) []error {
	errs := make([]error, len(list))
	for i, err := range list {
		errs[i] = fmt.Errorf(":%d: %w", l.of(err.Field), err)
	}
	return errs
}

// decoding returns the errors of a decoder, with their lines if they name a field.
func (l *lines) decoding(err error) []error {
	strict, ok := runtime.AsStrictDecodingError(err)
	if !ok {
		return []error{fmt.Errorf(": %w", err)}
	}
	var errs []error
	for _, err := range strict.Errors() {
		if path, found := cutUnknown(err.Error()); found {
			errs = append(errs, fmt.Errorf(":%d: %w", l.of(path), err))
			continue
		}
		errs = append(errs, fmt.Errorf(": %w", err))
	}
	return errs
}
