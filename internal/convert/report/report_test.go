package report

import (
	"encoding/json"
	"encoding/xml"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"svc.dev/svc/internal/convert"
)

func outcomes() []convert.Outcome {
	return []convert.Outcome{
		{File: "a.yaml", Line: 1, APIVersion: "policy/v1beta1", Kind: "PodDisruptionBudget", Namespace: "prod", Name: "web", To: "policy/v1",
			Changes: []convert.Change{{Line: 1, Path: "apiVersion", Message: "policy/v1beta1 is policy/v1"}},
			Findings: []convert.Finding{
				{Rule: convert.RemovedVersion, Level: convert.Error, Action: convert.Rewrite, Line: 1, Path: "apiVersion", Message: "not served since 1.25"},
			}},
		{File: "a.yaml", Line: 10, APIVersion: "v1", Kind: "Pod", Name: "x", Findings: []convert.Finding{
			{Rule: convert.MissingField, Level: convert.Error, Action: convert.Decide, Line: 14, Path: "spec.os", Message: "the field is new in 1.23"},
			{Rule: convert.DeprecatedMetadata, Level: convert.Warning, Line: 12, Path: "metadata.labels", Message: "deprecated <&> old"},
		}},
		{File: "b.yaml", Line: 1, APIVersion: "v1", Kind: "Node", Name: "n", Findings: []convert.Finding{
			{Rule: convert.DeprecatedMetadata, Level: convert.Warning, Line: 2, Path: "metadata.labels", Message: "deprecated"},
		}},
		{File: "b.yaml", Line: 20, APIVersion: "example.com/v1", Kind: "X", NotChecked: "custom resource: no release has the group"},
		{File: "cluster", APIVersion: "v1", Kind: "Secret", Name: "fine"},
	}
}

// go test ./internal/convert/report -update rewrites the expected output.
func TestForms(t *testing.T) {
	r := New(25, outcomes())
	r.Warnings = []string{"metrics were not read"}
	for name, write := range map[string]func(*strings.Builder) error{
		"text":      func(out *strings.Builder) error { r.Text(out, false, false); return nil },
		"converted": func(out *strings.Builder) error { r.Text(out, true, true); return nil },
		"json":      func(out *strings.Builder) error { return r.JSON(out) },
		"sarif":     func(out *strings.Builder) error { return r.SARIF(out, "0.1.0") },
		"junit":     func(out *strings.Builder) error { return r.JUnit(out) },
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := write(&out); err != nil {
				t.Fatal(err)
			}
			golden.Assert(t, out.String(), name+".golden")
		})
	}
	if r.Code() != 2 || r.Summary != (Summary{Checked: 4, NotChecked: 1, Convert: 1, Decide: 1, Warn: 1}) {
		t.Errorf("code %d, %+v", r.Code(), r.Summary)
	}
}

func TestCode(t *testing.T) {
	all := outcomes()
	for want, some := range map[int][]convert.Outcome{0: all[2:], 1: all[:1], 2: all[:2]} {
		if got := New(25, some).Code(); got != want {
			t.Errorf("code %d, want %d", got, want)
		}
	}
}

// What the schema of SARIF 2.1.0 requires of the parts that the report has.
func TestSARIFHasWhatItsSchemaRequires(t *testing.T) {
	var out strings.Builder
	if err := New(25, outcomes()).SARIF(&out, "0.1.0"); err != nil {
		t.Fatal(err)
	}
	var log sarifLog
	decoder := json.NewDecoder(strings.NewReader(out.String()))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&log); err != nil {
		t.Fatal(err)
	}
	if log.Version != "2.1.0" || len(log.Runs) != 1 || log.Runs[0].Tool.Driver.Name == "" {
		t.Fatalf("got %+v", log)
	}
	rules := log.Runs[0].Tool.Driver.Rules
	for _, result := range log.Runs[0].Results {
		if result.Message.Text == "" || rules[result.RuleIndex].ID != result.RuleID {
			t.Errorf("result %+v", result)
		}
		if result.Level != "error" && result.Level != "warning" && result.Level != "note" {
			t.Errorf("level %q", result.Level)
		}
		for _, l := range result.Locations {
			if l.PhysicalLocation != nil && l.PhysicalLocation.Region.StartLine < 1 {
				t.Errorf("location %+v", l)
			}
		}
	}
}

func TestJUnitCountsWhatItLists(t *testing.T) {
	var out strings.Builder
	if err := New(25, outcomes()).JUnit(&out); err != nil {
		t.Fatal(err)
	}
	var all junitSuites
	if err := xml.Unmarshal([]byte(out.String()), &all); err != nil {
		t.Fatal(err)
	}
	tests, failures := 0, 0
	for _, s := range all.Suites {
		tests += len(s.Cases)
		for _, c := range s.Cases {
			if c.Failure != nil {
				failures++
			}
		}
	}
	if all.Tests != tests || all.Failures != failures || tests != 5 || failures != 2 {
		t.Errorf("%d of %d tests, %d of %d failures", all.Tests, tests, all.Failures, failures)
	}
}

// What the formats forbid in names and messages, which come from manifests.
const odd = "a\x00\x1b[1m]]> <&>\"'\xff \ufffe é\n"

func TestSARIFOfOddNames(t *testing.T) {
	all := append(outcomes(), convert.Outcome{File: odd, Kind: odd, Name: odd, Findings: []convert.Finding{
		{Rule: convert.UnknownField, Level: convert.Error, Path: odd, Message: odd}, {Rule: convert.UnknownField, Level: convert.Error, Line: 1, Path: odd, Message: odd},
	}})
	var out strings.Builder
	if err := New(25, all).SARIF(&out, "0.1.0"); err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, out.String(), "sarif-odd.golden") // make lint-sarif validates it
	var log sarifLog
	if err := json.Unmarshal([]byte(out.String()), &log); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(log.Schema, "https://") {
		t.Errorf("schema %q", log.Schema)
	}
	seen := map[string]bool{}
	for _, rule := range log.Runs[0].Tool.Driver.Rules {
		if rule.ID == "" || rule.ShortDescription.Text == "" || seen[rule.ID] {
			t.Errorf("rule %+v", rule)
		}
		seen[rule.ID] = true
	}
	uriReference := regexp.MustCompile(`^([A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-F]{2})+$`)
	physical := 0
	for _, result := range log.Runs[0].Results {
		if result.RuleIndex < 0 || result.RuleIndex >= len(seen) || len(result.Locations) != 1 {
			t.Fatalf("result %+v", result)
		}
		if p := result.Locations[0].PhysicalLocation; p != nil {
			physical++
			if !uriReference.MatchString(p.ArtifactLocation.URI) || p.Region.StartLine < 1 {
				t.Errorf("location %+v", p)
			}
		}
	}
	if physical != 5 {
		t.Errorf("%d locations", physical)
	}
}

func TestJUnitOfOddNames(t *testing.T) {
	all := append(outcomes(), convert.Outcome{File: odd, APIVersion: odd, Kind: odd, Name: odd, Findings: []convert.Finding{
		{Rule: convert.UnknownField, Level: convert.Error, Path: odd, Message: odd}, {Rule: convert.UnknownField, Level: convert.Warning, Path: odd, Message: odd},
	}}, convert.Outcome{File: odd, Kind: odd, NotChecked: odd})
	var out strings.Builder
	if err := New(25, all).JUnit(&out); err != nil {
		t.Fatal(err)
	}
	for _, r := range out.String() {
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xfffe || r == 0xffff {
			t.Errorf("XML 1.0 has no character %U", r)
		}
	}
	var suites junitSuites
	decoder := xml.NewDecoder(strings.NewReader(out.String()))
	if err := decoder.Decode(&suites); err != nil {
		t.Fatal(err)
	}
	for _, suite := range suites.Suites {
		failures, skipped := 0, 0
		for _, c := range suite.Cases {
			if c.Name == "" {
				t.Errorf("%s: a case has no name", suite.Name)
			}
			if c.Failure != nil {
				failures++
			}
			if c.Skipped != nil {
				skipped++
			}
		}
		if suite.Tests != len(suite.Cases) || suite.Failures != failures || suite.Skipped != skipped || suite.Errors != 0 || suite.Name == "" {
			t.Errorf("suite %+v", suite)
		}
	}
}

func TestSARIFRefersToFilesByURIs(t *testing.T) {
	for file, want := range map[string]string{
		"a/b.yaml": "a/b.yaml", "/a b/c%.yaml": "/a%20b/c%25.yaml", "<stdin>": "%3Cstdin%3E", "a:b.yaml": "./a:b.yaml", "Helm release ns/web": "Helm%20release%20ns/web",
	} {
		if got := uri(file); got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}
