package apiserver_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/release"
)

func TestANodeActsOnlyOnItsOwnPods(t *testing.T) {
	o, _ := newOptions(t)
	tokens := adminToken + ",admin,1,system:masters\nn,system:node:a,2,system:nodes\n"
	if err := os.WriteFile(o.Authentication.TokenAuthFile, []byte(tokens), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Authorization.Components = authorization.Grants{authorization.Nodes()}
	r := start(t, o)
	const pods = "/api/v1/namespaces/default/pods"
	pod := func(name, node string) string {
		return fmt.Sprintf(`{"metadata": {"name": %q}, "spec": {"nodeName": %q, "containers": [{"name": "c", "image": "i"}]}}`, name, node)
	}
	for name, node := range map[string]string{"mine": "a", "theirs": "b"} {
		if code, body := r.do(t, http.MethodPost, pods, pod(name, node), false); code != http.StatusCreated {
			t.Fatalf("%s: %d %s", name, code, body)
		}
	}
	const status = `{"status": {"message": "from a"}}`
	const now = `{"gracePeriodSeconds": 0}`
	for _, test := range []struct {
		rule, method, path, body string
		want                     int
	}{
		{"it registers itself", http.MethodPost, "/api/v1/nodes", `{"metadata": {"name": "a"}}`, http.StatusCreated},
		{"and no other node", http.MethodPost, "/api/v1/nodes", `{"metadata": {"name": "b"}}`, http.StatusForbidden},
		{"it writes its own status", http.MethodPatch, "/api/v1/nodes/a/status", `{"status": {"nodeInfo": {"kernelVersion": "6"}}}`, http.StatusOK},
		{"and no other's", http.MethodPatch, "/api/v1/nodes/b/status", `{"status": {"addresses": []}}`, http.StatusForbidden},
		{"it writes the status of its pods", http.MethodPatch, pods + "/mine/status", status, http.StatusOK},
		{"and not that of others", http.MethodPatch, pods + "/theirs/status", status, http.StatusForbidden},
		{"not even without a UID", http.MethodPut, pods + "/theirs/status", `{"metadata": {"name": "theirs"}, "spec": {"nodeName": "b", "containers": [{"name": "c", "image": "i"}]}, "status": {"message": "from a"}}`, http.StatusForbidden},
		{"it makes no pods", http.MethodPost, pods, pod("new", "a"), http.StatusForbidden},
		{"it deletes no other's pods", http.MethodDelete, pods + "/theirs", now, http.StatusForbidden},
		{"nor gives them time to end", http.MethodDelete, pods + "/theirs", `{"gracePeriodSeconds": 5}`, http.StatusForbidden},
		{"a pod of another UID is a conflict", http.MethodDelete, pods + "/theirs", `{"preconditions": {"uid": "earlier"}, "gracePeriodSeconds": 0}`, http.StatusConflict},
		{"and its status is invalid", http.MethodPatch, pods + "/theirs/status", `{"metadata": {"uid": "earlier"}, "status": {"message": "x"}}`, http.StatusUnprocessableEntity},
		{"it deletes its own", http.MethodDelete, pods + "/mine", now, http.StatusOK},
	} {
		req, err := http.NewRequestWithContext(t.Context(), test.method, r.url+test.path, strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer n")
		req.Header.Set("Content-Type", "application/json")
		if test.method == http.MethodPatch {
			req.Header.Set("Content-Type", "application/strategic-merge-patch+json")
		}
		resp, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != test.want {
			t.Errorf("%s: %s %s is answered with %d, want %d", test.rule, test.method, test.path, resp.StatusCode, test.want)
		}
	}
}

// TestANodeReadsOtherNodesAndPodsAsInTheRelease: since 1.32 only by a role, which an
// administrator can take away.
func TestANodeReadsOtherNodesAndPodsAsInTheRelease(t *testing.T) {
	const own, others, all = "/api/v1/pods?fieldSelector=spec.nodeName=n1", "/api/v1/pods?fieldSelector=spec.nodeName=n2", "/api/v1/pods"
	for served, restricted := range map[string]bool{"1.31": false, "1.32": true, "1.37": true} {
		t.Run(served, func(t *testing.T) {
			s := newStage(t, "", func(o *options.Options) {
				var err error
				if o.Release, err = release.Parse(served); err != nil {
					t.Fatal(err)
				}
			})
			as := func(path string) (int, string) { return s.request("n1", http.MethodGet, path, "", nil) }
			check := func(want map[string]int) {
				t.Helper()
				for path, code := range want {
					if got, body := as(path); got != code {
						t.Errorf("%s: %d %s, want %d", path, got, body, code)
					}
				}
			}
			missing := http.StatusNotFound
			if restricted {
				missing = http.StatusForbidden
			}
			await(t, func() (int, string) { return as(all) }, http.StatusOK) // the role is in force
			check(map[string]int{
				own: http.StatusOK, others: http.StatusOK, "/api/v1/nodes": http.StatusOK,
				"/api/v1/nodes/n1": http.StatusNotFound, "/api/v1/nodes/n2": missing, "/api/v1/namespaces/default/pods/other": missing,
			})
			if !restricted {
				return
			}
			s.must(http.MethodDelete, rbacPath+"/clusterrolebindings/system:svc-node-network", "")
			await(t, func() (int, string) { return as(all) }, http.StatusForbidden)
			check(map[string]int{
				own: http.StatusOK, others: http.StatusForbidden, all + "?fieldSelector=spec.nodeName!=n1": http.StatusForbidden,
				"/api/v1/nodes": http.StatusForbidden, "/api/v1/nodes?fieldSelector=metadata.name=n1": http.StatusOK, "/api/v1/nodes/n1": http.StatusNotFound,
			})
		})
	}
}
