package example

import (
	"os"
	"strings"
	"testing"
)

func TestTheDocumentationShowsTheExample(t *testing.T) {
	const page = "../../../docs/testing-controllers.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("controller_test.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "```go\n"+string(example)+"```\n") {
		t.Errorf("%s does not show controller_test.go as it is", page)
	}
}
