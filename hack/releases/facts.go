package main

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/internal/releases"
)

// facts are what the types do not tell: facts.txt.
type facts struct {
	unserved map[string]bool // package.kind
	on       map[string]bool // packages with beta versions that are on by default
	last     map[string]releases.Release
	// replacements correct those that kinds declare, by package.kind.
	replacements map[string]schema.GroupVersionKind
}

func readFacts() (*facts, error) {
	content, err := inputs.ReadFile("facts.txt")
	if err != nil {
		return nil, err
	}
	f := &facts{unserved: map[string]bool{}, on: map[string]bool{}, last: map[string]releases.Release{}, replacements: map[string]schema.GroupVersionKind{}}
	for line := range strings.Lines(string(content)) {
		fact, _, _ := strings.Cut(line, "#")
		words := strings.Fields(fact)
		switch {
		case len(words) == 0:
		case len(words) == 2 && words[0] == "unserved":
			f.unserved[words[1]] = true
		case len(words) == 2 && words[0] == "on":
			f.on[words[1]] = true
		case len(words) == 3 && words[0] == "replacement":
			f.replacements[words[1]], err = releases.ParseKind(words[2])
		case len(words) == 3 && words[0] == "last":
			var minor int
			minor, err = strconv.Atoi(words[2])
			f.last[words[1]] = releases.Release(minor)
		default:
			err = fmt.Errorf("facts.txt: unknown fact %q", line)
		}
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}
