package apiserver_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"svc.dev/svc/apiserver/options"
)

func TestAQuotaHoldsForManyClientsOfTwoServers(t *testing.T) {
	const limit, clients = 40, 64
	o, _ := newOptions(t)
	second := options.New()
	second.Admission.DisablePlugins, second.Etcd.Servers = o.Admission.DisablePlugins, o.Etcd.Servers
	second.Authentication.TokenAuthFile = o.Authentication.TokenAuthFile
	second.SecureServing.ServerCert.CertDirectory = t.TempDir()
	var err error
	if second.SecureServing.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	servers := []*running{start(t, o), start(t, second)}

	const quotas, maps = "/api/v1/namespaces/default/resourcequotas", "/api/v1/namespaces/default/configmaps"
	a := servers[0]
	quota := fmt.Sprintf(`{"metadata": {"name": "few"}, "spec": {"hard": {"count/configmaps": "%d", "count/secrets": "0"}}}`, limit)
	if code, body := a.do(t, http.MethodPost, quotas, quota, false); code != http.StatusCreated {
		t.Fatalf("create the quota: %d %s", code, body)
	}
	// What the controller does.
	status := fmt.Sprintf(`{"metadata": {"name": "few"}, "spec": {"hard": {"count/configmaps": "%[1]d", "count/secrets": "0"}},
		"status": {"hard": {"count/configmaps": "%[1]d", "count/secrets": "0"}, "used": {"count/configmaps": "0", "count/secrets": "0"}}}`, limit)
	if code, body := a.do(t, http.MethodPut, quotas+"/few/status", status, false); code != http.StatusOK {
		t.Fatalf("write the status: %d %s", code, body)
	}
	for _, s := range servers {
		await(t, func() (int, string) { // until the quota is in force there
			return s.do(t, http.MethodPost, "/api/v1/namespaces/default/secrets?dryRun=All", `{"metadata": {"name": "s"}}`, false)
		}, http.StatusForbidden)
	}

	var created atomic.Int32
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			for n := range 2 {
				for code := http.StatusConflict; code == http.StatusConflict; {
					var body string
					code, body = servers[(i+n)%2].do(t, http.MethodPost, maps, fmt.Sprintf(`{"metadata": {"name": "c%d-%d"}}`, i, n), false)
					switch {
					case code == http.StatusCreated:
						created.Add(1)
					case code == http.StatusConflict: // the other server has written the quota several times
					case code != http.StatusForbidden || !strings.Contains(body, "exceeded quota: few"):
						t.Errorf("answered %d %s", code, body)
					}
				}
			}
		})
	}
	running.Wait()
	if n := created.Load(); n != limit {
		t.Errorf("%d objects were created, want %d", n, limit)
	}
	for _, s := range servers {
		if _, body := s.get(t, quotas+"/few", false); !strings.Contains(body, fmt.Sprintf(`"used":{"count/configmaps":"%d",`, limit)) {
			t.Errorf("the status is %s", body)
		}
	}
}
