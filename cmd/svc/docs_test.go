package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/controllers"
)

func TestTheFirstPageShowsHowManyControllersRun(t *testing.T) {
	page, err := os.ReadFile("../../docs/getting-started.md")
	if err != nil {
		t.Fatal(err)
	}
	names, err := newUp().Flags().GetStringSlice("controllers")
	if err != nil {
		t.Fatal(err)
	}
	picked, err := controllers.Pick(controllers.All(), names, false, includedAt(release.Default))
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf(" %d of them\n", len(picked)); !strings.Contains(string(page), want) {
		t.Errorf("docs/getting-started.md does not show that the controllers are%s", want)
	}
}

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
