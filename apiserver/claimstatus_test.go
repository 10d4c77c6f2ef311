package apiserver_test

import (
	"net/http"
	"strings"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/release"
)

// Kubernetes requires them with the gate DRAResourceClaimGranularStatusAuthorization.
func TestTheStatusOfAResourceClaimNeedsFurtherPermissionsSinceRelease136(t *testing.T) {
	const rights = known + `{"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status"], "verbs": ["patch"]}`
	const version, older, path = "v1", "v1beta1", "/namespaces/default/resourceclaims"
	for _, test := range []struct {
		rule     string
		minor    int
		off      bool
		version  string
		refusals bool
	}{
		{"an earlier release", 35, false, version, false},
		{"the release", 36, false, version, true},
		{"the release, in an older version of the kind", 36, false, older, true},
		{"the release without the gate", 36, true, version, false},
	} {
		t.Run(test.rule, func(t *testing.T) {
			s := newStage(t, rights, func(o *options.Options) {
				o.Release = release.Release{Major: 1, Minor: test.minor}
				o.RuntimeConfig = map[string]string{"resource.k8s.io/" + older: "true"}
				if test.off {
					featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, gates.DRAResourceClaimGranularStatusAuthorization, false)
				}
			})
			s.must(http.MethodPost, "/apis/resource.k8s.io/v1"+path, `{"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}}`)
			for _, change := range []struct{ body, permission string }{
				{`{"status": {"allocation": {"devices": {"results": [{"request": "r", "driver": "a.example.com", "pool": "p", "device": "d"}]}}}}`, "resourceclaims/binding"},
				{`{"status": {"devices": [{"driver": "a.example.com", "pool": "p", "device": "d"}]}}`, "resourceclaims/driver"},
			} {
				status := "/apis/resource.k8s.io/" + test.version + path + "/c/status"
				code, body := s.request("mallory", http.MethodPatch, status, change.body, nil)
				if test.refusals && (code != http.StatusUnprocessableEntity || !strings.Contains(body, change.permission)) || !test.refusals && code != http.StatusOK {
					t.Errorf("%s: %d %s", change.permission, code, body)
				}
				s.must(http.MethodPatch, status, change.body)
			}
		})
	}
}
