package discovery

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"svc.dev/svc/internal/releases"
)

func TestTheReleaseIsThatOfTheServer(t *testing.T) {
	for version, want := range map[string]releases.Release{
		`"v1.28.0"`: 28, `"v1.37.2+svc"`: 37, `"v1.36.1-gke.100"`: 36, `"v1.9.0"`: releases.Oldest, `"v1.99.0"`: releases.Newest, `"v2.0.0"`: releases.Newest,
		`"unknown"`: 0, `1`: 0,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"gitVersion": %s}`, version) // the client notices
		}))
		client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		d := New(client, clock.RealClock{})
		for _, when := range []string{"at first", "without the server"} {
			got, err := d.Release(t.Context())
			if got != want || (err == nil) != (want != 0) {
				t.Errorf("%s: %s: %v, %v; want %v", version, when, got, err, want)
			}
			server.Close()
		}
	}
}
