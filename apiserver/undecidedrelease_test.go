package apiserver_test

import (
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	clientv3 "go.etcd.io/etcd/client/v3"

	"svc.dev/svc/apiserver"
	"svc.dev/svc/apiserver/etcd"
)

func TestAServerWritesNothingBeforeItsReleaseMayServeWhatIsStored(t *testing.T) {
	const (
		service = `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "default"}, "spec": {"type": "ExternalName", "externalName": "example.com"`
		stored  = service + `, "trafficDistribution": "PreferClose"}}`
		path    = "/api/v1/namespaces/default/services/a"
	)
	o, member := newOptions(t)
	for key, value := range map[string]string{
		"services/default/a": stored,
		"namespaces/default": `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}`,
		"release":            `{"release": "1.37", "svc": "0.9.0", "storageVersions": {}}`,
	} {
		if _, err := member.Client().Put(t.Context(), "/registry/"+key, value); err != nil {
			t.Fatal(err)
		}
	}
	member.Stop()
	server, err := apiserver.New(o)
	if err != nil {
		t.Fatal(err)
	}
	decide, done := make(chan struct{}), make(chan error, 1)
	server.HoldExamination(decide)
	go func() { done <- server.Run(t.Context(), nil) }()
	r := &running{url: "https://" + server.Address(), client: newClient()}
	defer r.client.CloseIdleConnections()
	if code, body := r.get(t, "/version", true); code != http.StatusOK { // the port is served
		t.Fatalf("/version answers %d %s", code, body)
	}
	again, err := etcd.Start(t.Context(), etcd.Config{Dir: dirOf(member)})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop()
	NewWithT(t).Eventually(func() int { code, _ := r.get(t, path, false); return code }, "1m").Should(Equal(http.StatusOK))
	for _, write := range []struct{ method, path, body string }{
		{http.MethodPut, path, service + "}}"},
		{http.MethodDelete, path, ""},
		{http.MethodPost, "/api/v1/namespaces", `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "b"}}`},
	} {
		if code, body := r.do(t, write.method, write.path, write.body, false); code != http.StatusServiceUnavailable || !strings.Contains(body, "not known yet whether the release may serve what is stored") {
			t.Fatalf("%s %s answers %d %s", write.method, write.path, code, body)
		}
	}
	// The library ends the process if a server stops before this hook has ended.
	NewWithT(t).Eventually(func() int { code, _ := r.get(t, "/readyz/poststarthook/crd-informer-synced", false); return code }, "1m").Should(Equal(http.StatusOK))
	close(decide)
	if err := <-done; err == nil || !strings.Contains(err.Error(), "services default/a (spec.trafficDistribution)") {
		t.Errorf("the server ended with %v", err)
	}
	kept, err := again.Client().Get(t.Context(), "/registry/services/default/a")
	if err != nil || len(kept.Kvs) != 1 || string(kept.Kvs[0].Value) != stored {
		t.Errorf("stored is %v, %v", kept, err)
	}
	if namespaces, err := again.Client().Get(t.Context(), "/registry/namespaces/", clientv3.WithPrefix()); err != nil || namespaces.Count != 1 {
		t.Errorf("the server has created namespaces: %v, %v", namespaces, err)
	}
}
