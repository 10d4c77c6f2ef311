package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUnregisterSaysWhatItNeeds(t *testing.T) {
	for want, args := range map[string][]string{
		"--group-domain: name the domain of the groups to remove": nil,
		`--group-domain: "metrics.k8s.io" belongs to Kubernetes`:  {"--group-domain=metrics.k8s.io"},
		`unexpected argument "svc.dev"`:                           {"svc.dev"},
	} {
		var out, errOut strings.Builder
		if code := run(append([]string{"unregister"}, args...), &out, &errOut); code != 1 || !strings.Contains(errOut.String(), want) || strings.Count(errOut.String(), "\n") != 1 {
			t.Errorf("%q: exit code %d, %q, want one line with %q", args, code, errOut.String(), want)
		}
	}
}

func TestUnregisterNamesAHostThatDoesNotAnswer(t *testing.T) {
	host := httptest.NewServer(http.NotFoundHandler())
	host.Close()
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(`{"clusters":[{"name":"h","cluster":{"server":"`+host.URL+`"}}],"contexts":[{"name":"c","context":{"cluster":"h"}}],"current-context":"c"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errOut strings.Builder
	want := "svc unregister: --svcconfig: " + file + ": the host " + host.URL + ": list the APIServices of the host: "
	if code := run([]string{"unregister", "--group-domain=svc.dev", "--svcconfig", file}, &out, &errOut); code != 1 || !strings.HasPrefix(errOut.String(), want) {
		t.Errorf("exit code %d, %q, want %q", code, errOut.String(), want)
	}
}

func TestUnregisterRemovesAFleetThatAnswersOnlyByForce(t *testing.T) {
	var deleted []string
	answers := true
	services := `{"kind":"APIServiceList","apiVersion":"apiregistration.k8s.io/v1","items":[` +
		`{"metadata":{"name":"v1.apps.svc.dev","uid":"1"},"spec":{"group":"apps.svc.dev","version":"v1","service":{"namespace":"a","name":"b"}}},` +
		`{"metadata":{"name":"v1.fleet.svc.dev","uid":"2"},"spec":{"group":"fleet.svc.dev","version":"v1","service":{"namespace":"a","name":"b"}}},` +
		`{"metadata":{"name":"v1.apps"},"spec":{"group":"apps","version":"v1"}}]}`
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(req.URL.Path, ".svc.dev/v1") {
			if !answers {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = w.Write([]byte(`{"kind":"APIResourceList","apiVersion":"v1"}`))
			return
		}
		if req.Method == http.MethodDelete {
			deleted = append(deleted, req.URL.Path)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`))
			return
		}
		_, _ = w.Write([]byte(services))
	}))
	defer host.Close()
	file := filepath.Join(t.TempDir(), "config")
	connection := `{"clusters":[{"name":"h","cluster":{"server":"` + host.URL + `"}}],"contexts":[{"name":"h","context":{"cluster":"h"}}],"current-context":"h"}`
	if err := os.WriteFile(file, []byte(connection), 0o600); err != nil {
		t.Fatal(err)
	}
	unregister := func(flags ...string) (string, string) {
		var out, errOut strings.Builder
		run(append([]string{"unregister", "--group-domain=svc.dev", "--svcconfig", file}, flags...), &out, &errOut)
		return out.String(), errOut.String()
	}
	if out, errOut := unregister(); out != "" || len(deleted) > 0 ||
		!strings.HasPrefix(errOut, "svc unregister: the API servers of svc.dev answer (v1.apps.svc.dev and 1 more APIServices): ") || strings.Count(errOut, "\n") != 1 {
		t.Errorf("while the servers answer: printed %q and %q, deleted %v", out, errOut, deleted)
	}
	const removed = "apiservice v1.apps.svc.dev removed\napiservice v1.fleet.svc.dev removed\n"
	if out, errOut := unregister("--force"); out != removed || errOut != "" {
		t.Errorf("with --force: printed %q and %q", out, errOut)
	}
	answers = false
	if out, errOut := unregister(); out != removed || errOut != "" {
		t.Errorf("when the servers are gone: printed %q and %q", out, errOut)
	}
	if len(deleted) != 4 || !strings.HasSuffix(deleted[0], "/v1.apps.svc.dev") || !strings.HasSuffix(deleted[1], "/v1.fleet.svc.dev") {
		t.Errorf("deleted %v", deleted)
	}
	services = `{"kind":"APIServiceList","apiVersion":"apiregistration.k8s.io/v1","items":[]}`
	if out, _ := unregister(); out != host.URL+" has no APIServices of svc.dev\n" {
		t.Errorf("printed %q", out)
	}
}
