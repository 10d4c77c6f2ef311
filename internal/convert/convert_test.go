package convert

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/internal/golden"
	"svc.dev/svc/internal/manifest"
	"svc.dev/svc/internal/releases"
)

// The commands of the scripts: "convert RELEASE [VERSION]" prints the converted manifest
// and what has been changed and found, "patch RELEASE" those of a patch, "yaml RELEASE" the
// converted manifest in YAML's block style, "check RELEASE" only what has been found.
func TestScripts(t *testing.T) {
	table, err := releases.Load()
	if err != nil {
		t.Fatal(err)
	}
	golden.Run(t, func(t *testing.T) golden.Handler {
		return func(command golden.Command) string {
			release, err := releases.ParseRelease(command.Args[0])
			if err != nil {
				t.Fatal(err)
			}
			c := &Converter{Table: table, Release: release, OnlyRemoved: command.Name == "check", Patch: command.Name == "patch"}
			if len(command.Args) > 1 {
				if c.Version, err = schema.ParseGroupVersion(command.Args[1]); err != nil {
					t.Fatal(err)
				}
			}
			text, outcomes, err := c.File("m.yaml", body(command.Body))
			if err != nil {
				return err.Error()
			}
			var out strings.Builder
			switch command.Name {
			case "convert", "patch":
				out.WriteString(text)
			case "yaml":
				return inBlockStyle(t, text)
			}
			code := 0
			for _, o := range outcomes {
				for _, change := range o.Changes {
					if command.Name != "check" {
						fmt.Fprintf(&out, "* %d %s: %s\n", change.Line, change.Path, change.Message)
					}
				}
				for _, f := range o.Findings {
					fmt.Fprintf(&out, "! %d %s: %s (%s %s)\n", f.Line, f.Path, f.Message, f.Rule, strings.TrimSpace(string(f.Level)+" "+string(f.Action)))
				}
				if o.NotChecked != "" {
					fmt.Fprintf(&out, "? %d %s\n", o.Line, o.NotChecked)
				}
				code = max(code, o.Code())
			}
			fmt.Fprintf(&out, "exit %d", code)
			return out.String()
		}
	})
}

// body removes the indentation of continuation lines.
func body(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString(strings.TrimPrefix(line, "  "))
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

func inBlockStyle(t *testing.T, text string) string {
	t.Helper()
	documents, err := manifest.Parse("m.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	block, err := manifest.EncodeYAML(documents[0].Root)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(block, "\n")
}
