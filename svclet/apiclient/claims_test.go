package apiclient

import (
	"net/http"
	"net/http/httptest"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// claimsServer serves a claim in one version of the API.
func claimsServer(t *testing.T, version string) *Clients {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/apis/resource.k8s.io/" + version + "/namespaces/ns/resourceclaims/a":
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"ResourceClaim","apiVersion":"resource.k8s.io/` + version + `","metadata":{"name":"a","namespace":"ns","uid":"u"},` +
				`"spec":{"devices":{"requests":[{"name":"gpu","deviceClassName":"x"}]}},` +
				`"status":{"allocation":{"devices":{"results":[{"request":"gpu","driver":"d","pool":"p","device":"0"}]}},"reservedFor":[{"resource":"pods","name":"p","uid":"pu"}]}}`))
		case "/apis/resource.k8s.io/" + version + "/namespaces/ns/resourceclaims/b":
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"resourceclaims.resource.k8s.io \"b\" not found","details":{"name":"b","kind":"resourceclaims"}}`))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	c, err := New(&rest.Config{Host: server.URL}, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAClaimIsReadByTheVersionThatTheServerHas(t *testing.T) {
	for _, version := range []string{"v1", "v1beta2", "v1beta1"} {
		c := claimsServer(t, version)
		found, err := c.ResourceClaim(t.Context(), "ns", "a")
		if err != nil {
			t.Errorf("%s: %v", version, err)
			continue
		}
		if found.UID != "u" || found.Status.Allocation.Devices.Results[0].Driver != "d" || found.Status.ReservedFor[0].UID != "pu" {
			t.Errorf("%s: %v", version, found)
		}
		if _, err := c.ResourceClaim(t.Context(), "ns", "b"); !apierrors.IsNotFound(err) || err.Error() != `resourceclaims.resource.k8s.io "b" not found` {
			t.Errorf("%s: a claim that is missing: %v", version, err)
		}
	}
	if _, err := claimsServer(t, "v1alpha2").ResourceClaim(t.Context(), "ns", "a"); !apierrors.IsNotFound(err) {
		t.Errorf("a server without the kinds: %v", err)
	}
}

func TestTheResourceSlicesOfANodeAreDeletedByTheVersionThatTheServerHas(t *testing.T) {
	for version, want := range map[string]string{
		"v1":       "DELETE /apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.driver%3Dgpu%2Cspec.nodeName%3Dn1",
		"v1beta1":  "DELETE /apis/resource.k8s.io/v1beta1/resourceslices?fieldSelector=spec.driver%3Dgpu%2Cspec.nodeName%3Dn1",
		"v1alpha2": "",
	} {
		got := ""
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/apis/resource.k8s.io/"+version+"/resourceslices" || version == "v1alpha2" {
				http.NotFound(w, r)
				return
			}
			got = r.Method + " " + r.URL.String()
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`))
		}))
		c, err := New(&rest.Config{Host: server.URL}, clock.RealClock{})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.DeleteResourceSlices(t.Context(), "n1", "gpu"); err != nil || got != want {
			t.Errorf("%s: %q, %v", version, got, err)
		}
		server.Close()
	}
}
