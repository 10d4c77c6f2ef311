package main

import (
	"os"
	"regexp"
	"testing"
)

func TestTheArchitectureNamesEveryFolderOfTheServerTheAgentAndTheirHelpers(t *testing.T) {
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{"apiserver", "apiserver/filters", "svclet", "internal"} {
		entries, err := os.ReadDir("../../" + root)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			// As `name`, or at the end of a path.
			named := regexp.MustCompile("[`/]" + regexp.QuoteMeta(e.Name()) + "[`/]")
			if e.IsDir() && e.Name() != "testdata" && !named.Match(page) {
				t.Errorf("docs/architecture.md does not name the folder %s/%s", root, e.Name())
			}
		}
	}
}
