package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"svc.dev/svc/internal/convert"
)

const (
	oldBudget = "# why\napiVersion: policy/v1beta1\nkind: PodDisruptionBudget\nmetadata: {name: a}\nspec: {minAvailable: 1}\n"
	newBudget = "# why\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: a}\nspec: {minAvailable: 1}\n"
)

func TestConvert(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"old.yaml": oldBudget, "new.yaml": newBudget, "broken.yaml": "a: b\n c: [\n",
		"gone.yaml": "apiVersion: policy/v1beta1\nkind: PodSecurityPolicy\nmetadata: {name: a}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for _, tc := range []struct {
		name string
		args string
		code int
		out  string // the beginning of the output
		err  string // the beginning of the standard error
	}{
		{name: "nothing to do", args: "--release=1.25 new.yaml", out: newBudget, err: "1 objects checked for 1.25: 0 converted, 0 to decide, 0 with warnings\n"},
		{name: "converted", args: "--release=1.25 old.yaml", code: 1, out: newBudget, err: "old.yaml:2: changed: PodDisruptionBudget a: apiVersion: policy/v1beta1 is policy/v1\n1 objects"},
		{name: "two files are two documents", args: "--release=1.25 new.yaml -f old.yaml", code: 1, out: newBudget + "---\n" + newBudget},
		{name: "a decision", args: "--release=1.25 gone.yaml", code: 2, out: "apiVersion: policy/v1beta1", err: "gone.yaml:1: decide: PodSecurityPolicy a: apiVersion: policy/v1beta1 PodSecurityPolicy is not served since 1.25"},
		{name: "as YAML", args: "--release=1.25 -o yaml old.yaml", code: 1, out: "# why\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata:\n  name: a\n"},
		{name: "as JSON", args: "--release=1.25 -o json old.yaml", code: 1, out: "{\n  \"apiVersion\": \"policy/v1\","},
		{name: "a list as JSON", args: "--release=1.25 -o json old.yaml new.yaml", code: 1, out: "{\n  \"apiVersion\": \"v1\",\n  \"kind\": \"List\","},
		{name: "checked", args: "--check --release=1.25 old.yaml", code: 1, out: "old.yaml:2: error: PodDisruptionBudget a: apiVersion: policy/v1beta1 PodDisruptionBudget is not served since 1.25; use policy/v1 PodDisruptionBudget\n1 objects"},
		{name: "deprecated", args: "--check --release=1.24 old.yaml", out: "old.yaml:2: warning: PodDisruptionBudget a: apiVersion: policy/v1beta1 PodDisruptionBudget is deprecated since 1.21 and not served from 1.25; use"},
		{name: "checked as JSON", args: "--check --release=1.25 -o json old.yaml", code: 1, out: "{\n  \"release\": \"1.25\","},
		{name: "checked as SARIF", args: "--check --release=1.25 -o sarif old.yaml", code: 1, out: "{\n  \"$schema\": \"https://json.schemastore.org/sarif-2.1.0.json\","},
		{name: "checked as JUnit", args: "--check --release=1.25 -o junit old.yaml", code: 1, out: "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites "},
		{name: "a broken file among others", args: "--check --release=1.25 .", code: 3, out: "gone.yaml:1: decide", err: "svc convert: broken.yaml:2: invalid YAML: "},
		{name: "no file", args: "--check", code: 3, err: "svc convert: no manifests: name files or directories"},
		{name: "no such file", args: "absent.yaml", code: 3, err: "svc convert: absent.yaml: no such file or directory\n"},
		{name: "no such release", args: "--release=1.15 new.yaml", code: 3, err: `svc convert: --release: invalid release "1.15": must be 1.16 to 1.37, or latest;`},
		{name: "no such version", args: "--release=1.25 --output-version=policy/v1beta1 new.yaml", code: 3, err: "svc convert: --output-version: 1.25 does not serve policy/v1beta1;"},
		{name: "no such output", args: "-o sarif new.yaml", code: 3, err: `svc convert: --output: "sarif" is unknown: must be yaml or json, or left out;`},
		{name: "no such output of a check", args: "--check -o yaml new.yaml", code: 3, err: `svc convert: --output: "yaml" is unknown: must be json or sarif or junit, or left out;`},
		{name: "a cluster is only checked", args: "--cluster", code: 3, err: "svc convert: --cluster: only --check reads a cluster"},
		{name: "a cluster and files", args: "--check --cluster new.yaml", code: 3, err: "svc convert: --cluster: cannot be used together with files;"},
		{name: "a check writes nothing", args: "--check --write new.yaml", code: 3, err: "svc convert: --write: cannot be used together with --check"},
		{name: "the standard input is not written", args: "--write -", code: 3, err: "svc convert: --write: the standard input cannot be written;"},
		{name: "unknown flag", args: "--chek", code: 3, err: "svc convert: unknown flag: --chek: did you mean --check?;"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errOut strings.Builder
			code := run(append([]string{"convert"}, strings.Fields(tc.args)...), &out, &errOut)
			if code != tc.code || !strings.HasPrefix(out.String(), tc.out) || !strings.HasPrefix(errOut.String(), tc.err) {
				t.Errorf("exit code %d, want %d\n%s\n%s", code, tc.code, out.String(), errOut.String())
			}
		})
	}
}

func TestConvertWritesTheFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, []byte(oldBudget), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errOut strings.Builder
	if code := run([]string{"convert", "--release=1.25", "--write", file}, &out, &errOut); code != 1 || !strings.Contains(out.String(), "1 converted") {
		t.Errorf("exit code %d, %s%s", code, out.String(), errOut.String())
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != newBudget {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestConvertReportsForPrograms(t *testing.T) {
	dir := t.TempDir()
	file, report := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "report.json")
	text := oldBudget + "---\napiVersion: policy/v1beta1\nkind: PodSecurityPolicy\nmetadata: {name: b}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errOut strings.Builder
	if code := run([]string{"convert", "--release=1.25", "-o", "json", "--report=" + report, file}, &out, &errOut); code != 2 {
		t.Errorf("exit code %d, %s%s", code, out.String(), errOut.String())
	}
	var got struct{ Objects []convert.Outcome }
	data, err := os.ReadFile(report)
	if err == nil {
		err = json.Unmarshal(data, &got)
	}
	if err != nil || len(got.Objects) != 2 || got.Objects[0].Changes[0].Message != "policy/v1beta1 is policy/v1" || got.Objects[1].Findings[0].Action != convert.Decide {
		t.Errorf("%v\n%s", err, data)
	}
}

func TestAnInvalidDocumentHidesNoOther(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	text := oldBudget + "---\na: b\n c: [\n---\n" + oldBudget
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range []string{"--check", "--write", "-o=yaml"} {
		var out, errOut strings.Builder
		code := run([]string{"convert", "--release=1.25", flags, file}, &out, &errOut)
		all := out.String() + errOut.String()
		if code != 3 || !strings.Contains(all, "2 objects checked") || !strings.Contains(all, file+":8: invalid YAML") || !strings.Contains(all, file+":11: ") {
			t.Errorf("%s: exit code %d\n%s", flags, code, all)
		}
		if changed := strings.Contains(all, ": changed:") || strings.Contains(all, "# why"); changed {
			t.Errorf("%s: something is converted:\n%s", flags, all)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != text {
			t.Errorf("%s: %v\n%s", flags, err, got)
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestOutputThatIsLostIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, []byte(newBudget), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range []string{"--check", "--check --output=sarif", "--write", "--output=json", ""} {
		var errOut strings.Builder
		if code := run(append([]string{"convert", file}, strings.Fields(flags)...), full{}, &errOut); code != 3 || !strings.Contains(errOut.String(), "no space left on device") {
			t.Errorf("%s: exit code %d, %s", flags, code, errOut.String())
		}
	}
}

func TestACheckOfAClusterThatCannotBeReadFails(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api":
			fmt.Fprint(w, `{"kind":"APIVersions","versions":[]}`)
		case "/apis":
			fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
		default:
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`)
		}
	}))
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "config")
	config := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"a","cluster":{"server":%q}}],"contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}],"users":[{"name":"a","user":{"token":"t"}}],"current-context":"a"}`, s.URL)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errOut strings.Builder
	code := run([]string{"convert", "--check", "--cluster", "--svcconfig=" + file}, &out, &errOut)
	if code != 3 || !strings.HasPrefix(errOut.String(), "svc convert: not everything was checked: Helm releases in Secrets were not read: ") || !strings.Contains(out.String(), "warning: requests for deprecated versions were not read (/metrics)") {
		t.Errorf("exit code %d\n%s\n%s", code, out.String(), errOut.String())
	}
}
