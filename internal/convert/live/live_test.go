package live

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"svc.dev/svc/internal/convert"
	"svc.dev/svc/internal/releases"
)

// server answers as an API server with two pages of CronJobs, two Helm releases, of
// which one cannot be read, and a group of custom resources, whose objects it does not expect to be asked for.
func server(t *testing.T, metrics http.HandlerFunc) *rest.Config {
	t.Helper()
	answer := func(w http.ResponseWriter, value any) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(value); err != nil {
			t.Error(err)
		}
	}
	group := func(name, version string) metav1.APIGroup {
		gv := metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + version, Version: version}
		return metav1.APIGroup{Name: name, Versions: []metav1.GroupVersionForDiscovery{gv}, PreferredVersion: gv}
	}
	resources := func(gv, name, kind string) *metav1.APIResourceList {
		return &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv,
			APIResources: []metav1.APIResource{{Name: name, Kind: kind, Namespaced: true, Verbs: metav1.Verbs{"list"}}, {Name: name + "/status", Kind: kind, Verbs: metav1.Verbs{"get"}}}}
	}
	cronJob := func(name, manifest string) map[string]any {
		return map[string]any{
			"metadata": metav1.ObjectMeta{Name: name, Namespace: "a", UID: types.UID(name), Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: manifest}},
			"spec": map[string]any{"timeZone": "Etc/UTC", "jobTemplate": map[string]any{"spec": map[string]any{
				"podFailurePolicy": map[string]any{"rules": []any{}},
				"template":         map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "c"}}, "hostUsers": false}},
			}}},
			"status": map[string]any{"lastSuccessfulTime": "2024-01-01T00:00:00Z"},
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	})
	mux.HandleFunc("GET /apis", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{group("batch", "v1"), group("example.com", "v1")}})
	})
	mux.HandleFunc("GET /apis/batch/v1", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, resources("batch/v1", "cronjobs", "CronJob"))
	})
	mux.HandleFunc("GET /apis/example.com/v1", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, resources("example.com/v1", "things", "Thing"))
	})
	mux.HandleFunc("GET /apis/batch/v1/cronjobs", func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
			t.Error("the fields of jobs are not read")
		}
		page := map[string]any{"apiVersion": "batch/v1", "kind": "CronJobList"}
		old := cronJob("old", `{"apiVersion":"batch/v1beta1","kind":"CronJob","metadata":{"name":"old"}}`)
		if r.URL.Query().Get("continue") == "" {
			page["metadata"] = map[string]any{"continue": "more"}
			page["items"] = []any{old}
		} else {
			page["items"] = []any{cronJob("new", `{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"new"}}`), old} // as another group may list it
		}
		answer(w, page)
	})
	mux.HandleFunc("GET /api/v1", func(w http.ResponseWriter, _ *http.Request) { answer(w, resources("v1", "limitranges", "LimitRange")) })
	mux.HandleFunc("GET /api/v1/limitranges", func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
			t.Error("the fields of what has the same at all releases are read")
		}
		answer(w, metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}})
	})
	mux.HandleFunc("GET /api/v1/secrets", func(w http.ResponseWriter, r *http.Request) { answer(w, storedReleases(t, r)) })
	mux.HandleFunc("GET /api/v1/configmaps", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no", http.StatusForbidden)
	})
	mux.HandleFunc("GET /metrics", metrics)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("unexpected request %s %s", r.Method, r.URL)
		http.NotFound(w, r)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL}
}

// storedReleases returns a page of the secrets of Helm's releases.
func storedReleases(t *testing.T, r *http.Request) corev1.SecretList {
	t.Helper()
	if selector := r.URL.Query().Get("labelSelector"); selector != "owner=helm,status=deployed" {
		t.Errorf("secrets listed by %q", selector)
	}
	list := corev1.SecretList{TypeMeta: metav1.TypeMeta{Kind: "SecretList", APIVersion: "v1"}}
	if r.URL.Query().Get("continue") == "" {
		list.Continue = "more"
		list.Items = []corev1.Secret{{ObjectMeta: metav1.ObjectMeta{Name: "sh.helm.release.v1.web.v2", Namespace: "a"}, Data: map[string][]byte{
			"release": helm(t, `{"name":"web","namespace":"a","manifest":"---\napiVersion: policy/v1beta1\nkind: PodDisruptionBudget\nmetadata: {name: charted}\n"}`)}}}
	} else {
		list.Items = []corev1.Secret{{ObjectMeta: metav1.ObjectMeta{Name: "broken", Namespace: "a"}, Data: map[string][]byte{"release": []byte("?")}}}
	}
	return list
}

// helm returns a release as Helm stores it.
func helm(t *testing.T, release string) []byte {
	t.Helper()
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	if _, err := w.Write([]byte(release)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return []byte(base64.StdEncoding.EncodeToString(compressed.Bytes()))
}

func converter(t *testing.T) *convert.Converter {
	t.Helper()
	table, err := releases.Load()
	if err != nil {
		t.Fatal(err)
	}
	return &convert.Converter{Table: table, Release: 25, OnlyRemoved: true}
}

func TestCheck(t *testing.T) {
	config := server(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# TYPE apiserver_requested_deprecated_apis gauge\n"+
			"apiserver_requested_deprecated_apis{group=\"policy\",removed_release=\"1.25\",resource=\"x\",subresource=\"\",version=\"v1beta1\"} 1\n"+
			"apiserver_requested_deprecated_apis{group=\"autoscaling\",removed_release=\"1.26\",resource=\"y\",subresource=\"\",version=\"v2beta2\"} 1\n")
	})
	outcomes, warnings, err := Check(t.Context(), config, converter(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) != 2 || !strings.HasPrefix(warnings[0], "the Helm release in Secret a/broken was not read: ") || !strings.HasPrefix(warnings[1], "Helm releases in ConfigMaps were not read: ") {
		t.Errorf("warnings: %q", warnings)
	}
	var got []string
	for _, o := range outcomes {
		got = append(got, fmt.Sprintf("%s %s%s %d", o.APIVersion, o.Kind, o.Name, o.Code()))
	}
	if all := strings.Join(got, ", "); all != "batch/v1 CronJobold 1, batch/v1 CronJobnew 0, policy/v1beta1 PodDisruptionBudgetcharted 1, policy/v1beta1 x 2" {
		t.Errorf("got %s", all)
	}
}

func TestFieldsOfObjectsThatTheReleaseLacks(t *testing.T) {
	config := server(t, func(http.ResponseWriter, *http.Request) {})
	c := converter(t)
	c.Release = 23
	outcomes, _, err := Check(t.Context(), config, c)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range outcomes[1].Findings {
		got = append(got, fmt.Sprintf("%s %s %s: %s", f.Level, f.Rule, f.Path, f.Message))
	}
	want := []string{
		"warning missing-field spec.jobTemplate.spec.podFailurePolicy: in the object of the cluster: the field is new in 1.25",
		"warning missing-field spec.jobTemplate.spec.template.spec.hostUsers: in the object of the cluster: the field is new in 1.25",
		"warning missing-field spec.timeZone: in the object of the cluster: the field is new in 1.24",
	}
	if outcomes[1].Name != "new" || !slices.Equal(got, want) || outcomes[1].Code() != 0 {
		t.Errorf("%s: %q", outcomes[1].Name, got)
	}
}

func TestWhatCannotBeReadIsAWarning(t *testing.T) {
	config := server(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) })
	outcomes, warnings, err := Check(t.Context(), config, converter(t))
	if err != nil || len(outcomes) != 3 || len(warnings) != 3 || !strings.Contains(warnings[2], "/metrics") {
		t.Errorf("%d outcomes, %v, %v", len(outcomes), warnings, err)
	}
}

func TestAClusterThatDoesNotAnswerIsAnError(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	if _, _, err := Check(t.Context(), &rest.Config{Host: s.URL}, converter(t)); err == nil {
		t.Error("no error")
	}
}
