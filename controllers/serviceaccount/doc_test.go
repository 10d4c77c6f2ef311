package serviceaccount

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentationQuotesThisPackage checks that the Go code in
// docs/adding-a-controller.md is that of this package, which compiles.
func TestDocumentationQuotesThisPackage(t *testing.T) {
	page, err := os.ReadFile("../../docs/adding-a-controller.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(content)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) == 0 {
		t.Fatal("the page has no Go code")
	}
	for _, block := range blocks {
		if !strings.Contains(code.String(), string(block[1])) {
			t.Errorf("this code of the page is not in the package:\n%s", block[1])
		}
	}
}
