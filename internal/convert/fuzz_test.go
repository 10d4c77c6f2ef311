package convert

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"svc.dev/svc/internal/manifest"
	"svc.dev/svc/internal/releases"
)

// FuzzFile converts what is no manifest, and manifests with values of the wrong type: it
// must not panic, and what it prints can be read and needs no more conversion.
func FuzzFile(f *testing.F) {
	table, err := releases.Load()
	if err != nil {
		f.Fatal(err)
	}
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			f.Fatal(err)
		}
		var manifest strings.Builder
		for line := range strings.Lines(string(text)) {
			switch {
			case strings.HasPrefix(line, "  "):
				manifest.WriteString(line[2:])
			case manifest.Len() > 0:
				f.Add(manifest.String(), 25)
				manifest.Reset()
			}
		}
	}
	for kind := range map[string]bool{"webhooks: [null, 1]": true, "spec: 1": true, "spec: {versions: [1], validation: 2}": true} {
		for _, k := range table.Kinds {
			f.Add("apiVersion: "+k.GroupVersion().String()+"\nkind: "+k.Kind+"\n"+kind+"\n", 37)
		}
	}
	f.Add("kind: CronJobList\nitems:\n- apiVersion: batch/v1beta1\n  kind: CronJob\n", 25) // a list without a version
	f.Fuzz(func(t *testing.T, text string, release int) {
		c := &Converter{Table: table, Release: releases.Release(release)}
		after, outcomes, err := c.File("m.yaml", text)
		if err != nil {
			return
		}
		for _, o := range outcomes {
			if o.Code() == 2 {
				return
			}
		}
		if _, err := manifest.Parse("m.yaml", after); err != nil {
			t.Fatalf("%v\n%s\nbefore\n%s", err, after, text)
		}
		_, again, err := c.File("m.yaml", after)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range again {
			if len(o.Changes) > 0 {
				t.Fatalf("changed again: %+v\n%s\nbefore\n%s", o.Changes, after, text)
			}
		}
	})
}
