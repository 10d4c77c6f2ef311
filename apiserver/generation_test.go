package apiserver_test

import (
	"encoding/json"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/release"
)

// The source is KEP-5067.
func TestPodsHaveGenerationsSinceRelease133(t *testing.T) {
	const pods = "/api/v1/namespaces/default/pods"
	for minor, want := range map[int][2]int64{32: {0, 0}, 33: {1, 2}} {
		r := release.Release{Major: 1, Minor: minor}
		t.Run(r.String(), func(t *testing.T) {
			s := newStage(t, "", func(o *options.Options) { o.Release = r })
			for i, change := range []struct{ method, path, body string }{
				{http.MethodPost, pods, `{"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}`},
				{http.MethodPatch, pods + "/a", `{"spec": {"activeDeadlineSeconds": 60}}`},
			} {
				code, body := s.request("admin", change.method, change.path, change.body, nil)
				var pod metav1.PartialObjectMetadata
				if err := json.Unmarshal([]byte(body), &pod); err != nil || code >= http.StatusMultipleChoices {
					t.Fatalf("%d %s", code, body)
				}
				if pod.Generation != want[i] {
					t.Errorf("%s: generation %d, want %d", change.method, pod.Generation, want[i])
				}
			}
		})
	}
}
