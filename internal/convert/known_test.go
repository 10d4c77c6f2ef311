package convert

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"testing"

	"svc.dev/svc/internal/releases"
)

//go:embed testdata/known.tsv
var known string

// TestFindsWhatOtherToolsFind checks each version that other checkers of deprecations
// list: an error at the release that removed it, and no error at the one before.
func TestFindsWhatOtherToolsFind(t *testing.T) {
	table, err := releases.Load()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(known) {
		row := strings.Split(strings.TrimSpace(line), "\t")
		if strings.HasPrefix(line, "#") {
			continue
		}
		removed, err := releases.ParseRelease(row[0])
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.Join(row[1:], " "), func(t *testing.T) {
			if errors := errorsAt(t, table, removed, row[1], row[2]); len(errors) != 1 {
				t.Errorf("%d errors at %v: %q", len(errors), removed, errors)
			}
			if removed == releases.Oldest {
				return
			}
			if errors := errorsAt(t, table, removed-1, row[1], row[2]); len(errors) > 0 {
				t.Errorf("at %v: %q", removed-1, errors)
			}
		})
	}
}

// errorsAt returns the errors about the version of an object, or of one in a list.
func errorsAt(t *testing.T, table *releases.Table, r releases.Release, apiVersion, kind string) (errors []string) {
	t.Helper()
	text := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: a}\n", apiVersion, kind)
	if item, ok := strings.CutSuffix(kind, "List"); ok {
		text = fmt.Sprintf("apiVersion: %s\nkind: %s\nitems:\n- metadata: {name: a}\n  kind: %s\n  apiVersion: %s\n", apiVersion, kind, item, apiVersion)
	}
	c := &Converter{Table: table, Release: r, OnlyRemoved: true}
	_, outcomes, err := c.File("m.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range outcomes {
		for _, f := range o.Findings {
			if slices.Contains([]Rule{RemovedVersion, UnknownVersion}, f.Rule) {
				errors = append(errors, f.Message)
			}
		}
	}
	return errors
}
