// Package rules has the index of the rules of documents 1 and 2, and checks that the tests
// that it names exist.
package rules

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

//go:embed rules.txt
var index string

// rule is a rule of a document, and the tests that show it.
type rule struct {
	section, text string
	tests         []string // file: name
}

// read reads an index: sections, below them rules, below these tests.
func read(index string) ([]rule, error) {
	var rules []rule
	section := ""
	for n, line := range strings.Split(index, "\n") {
		text := strings.TrimSpace(line)
		switch indent := len(line) - len(strings.TrimLeft(line, " ")); {
		case text == "" || line[0] == '#':
		case indent == 0:
			section = text
		case indent == 2 && section != "":
			rules = append(rules, rule{section: section, text: text})
		case indent == 4 && len(rules) > 0:
			last := &rules[len(rules)-1]
			last.tests = append(last.tests, text)
		default:
			return nil, fmt.Errorf("line %d: %q: must be a section, a rule by two spaces or a test by four", n+1, line)
		}
	}
	return rules, nil
}

func TestEveryRuleHasATestThatExists(t *testing.T) {
	rules, err := read(index)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string][]string{}
	for _, r := range rules {
		if len(r.tests) == 0 {
			t.Errorf("%s: %s: has no test, and no reason for none", r.section, r.text)
		}
		for _, test := range r.tests {
			file, name, found := strings.Cut(test, ": ")
			if !found {
				t.Errorf("%s: %s: %q is not a file and a name", r.section, r.text, test)
			}
			if file == "none" {
				continue
			}
			if names[file] == nil {
				if names[file], err = namesIn(filepath.Join("..", file)); err != nil {
					t.Errorf("%s: %s: %v", r.section, r.text, err)
					continue
				}
			}
			if !slices.Contains(names[file], name) {
				t.Errorf("%s: %s: %s has no test %q", r.section, r.text, file, name)
			}
		}
	}
}

// Every file of the suite shows a rule, or is one of those.
func TestEveryFileOfTheSuiteIsInTheIndex(t *testing.T) {
	others := []string{"suite_test.go", "customresource_test.go", "aggregation_test.go", "metrics_test.go"}
	files, err := filepath.Glob("../*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		if !slices.Contains(others, name) && !strings.Contains(index, "\n    "+name+": ") {
			t.Errorf("%s shows no rule", name)
		}
	}
}

// namesIn returns the names of the tests in a Go file: functions, containers, specs and
// entries of tables. What is not constant in a name is "...".
func namesIn(file string) ([]string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var names []string
	ast.Inspect(parsed, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.FuncDecl:
			names = append(names, n.Name.Name)
		case *ast.CallExpr:
			if called, ok := n.Fun.(*ast.Ident); ok && slices.Contains([]string{"It", "Describe", "DescribeTable", "Entry"}, called.Name) && len(n.Args) > 0 {
				names = append(names, textOf(n.Args[0]))
			}
		}
		return true
	})
	return names, nil
}

func textOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil {
			return text
		}
	case *ast.BinaryExpr:
		return textOf(e.X) + textOf(e.Y)
	}
	return "..."
}

func TestAnIndexThatIsWrongIsRefused(t *testing.T) {
	for _, wrong := range []string{"  a rule without a section", "section\n    a test without a rule", "section\n   three spaces"} {
		if _, err := read(wrong); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}
