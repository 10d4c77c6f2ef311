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

func TestUnregisterPrintsWhatItRemoves(t *testing.T) {
	var deleted []string
	services := `{"kind":"APIServiceList","apiVersion":"apiregistration.k8s.io/v1","items":[` +
		`{"metadata":{"name":"v1.apps.svc.dev","uid":"1"},"spec":{"group":"apps.svc.dev","version":"v1","service":{"namespace":"a","name":"b"}}},` +
		`{"metadata":{"name":"v1.apps"},"spec":{"group":"apps","version":"v1"}}]}`
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
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
	unregister := func() string {
		var out, errOut strings.Builder
		if code := run([]string{"unregister", "--group-domain=svc.dev", "--svcconfig", file}, &out, &errOut); code != 0 {
			t.Errorf("exit code %d: %s", code, errOut.String())
		}
		return out.String()
	}
	if got := unregister(); got != "apiservice v1.apps.svc.dev removed\n" {
		t.Errorf("printed %q", got)
	}
	if len(deleted) != 1 || !strings.HasSuffix(deleted[0], "/v1.apps.svc.dev") {
		t.Errorf("deleted %v", deleted)
	}
	services = `{"kind":"APIServiceList","apiVersion":"apiregistration.k8s.io/v1","items":[]}`
	if got := unregister(); got != host.URL+" has no APIServices of svc.dev\n" {
		t.Errorf("printed %q", got)
	}
}
