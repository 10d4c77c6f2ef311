package access

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
	sigsyaml "sigs.k8s.io/yaml"

	"svc.dev/svc/test/launch"
	"svc.dev/svc/test/peers/difference"
)

// compatible are the plugins that are off by default and whose effects do not exclude each other.
const compatible = "NodeRestriction,AlwaysPullImages,DenyServiceExternalIPs,ExtendedResourceToleration,LimitPodHardAntiAffinityTopology," +
	"NamespaceExists,OwnerReferencesPermissionEnforcement,PodNodeSelector,PodTolerationRestriction"

// step is a request of admission.yaml. Its response is compared if it has a name.
type step struct {
	// Is says which plugin does what; a step without it prepares others.
	Is string `json:"is"`
	// Method is POST by default; User is impersonated, with Groups.
	Method, User string
	Groups       []string
	// Path is that of the collection for a POST, otherwise that of the object.
	Path, ContentType string
	Body              map[string]any
	// Until repeats a request that prepares others until its answer begins with it, or the
	// field Of of the response does.
	Until, Of string
	// OneOf are the answers of which each server gives one, where they depend on which of
	// several webhooks answers first. Otherwise the answers of both servers are compared.
	OneOf []string `json:"oneOf"`

	auditID string
}

// configured are those with a configuration, and those of which controllers do the other
// half, besides those that are on by default.
const configured = "NodeRestriction,EventRateLimit,ImagePolicyWebhook,NamespaceAutoProvision"

// TestBothServersAdmitTheSame compares what each admission plugin accepts, changes and refuses.
func TestBothServersAdmitTheSame(t *testing.T) {
	svc, kube := start(t, "--enable-admission-plugins="+compatible, "--disable-admission-plugins=ServiceAccount", "--allow-privileged=true")
	compareAdmission(t, svc, kube, "admission", steps(t, "admission.yaml"))
}

// TestBothServersAdmitTheSameWithConfiguredPlugins is TestBothServersAdmitTheSame for others.
func TestBothServersAdmitTheSameWithConfiguredPlugins(t *testing.T) {
	svc, kube := startWith(t, []string{"--controllers=", "--service-cluster-ip-range=10.96.0.0/16"},
		"--enable-admission-plugins="+configured, "--admission-control-config-file="+pluginConfig(t))
	compareAdmission(t, svc, kube, "configured admission", steps(t, "configured.yaml"))
}

// later are the plugins that are compared at the release of kube-apiserver, besides those
// that are on by default.
const later = "AlwaysAdmit,AlwaysPullImages"

// TestBothServersAdmitTheSameAtALaterRelease is TestBothServersAdmitTheSame for the plugins
// of later releases, the kinds of them that are off by default, and roles and bindings that a
// user writes who may not write all.
func TestBothServersAdmitTheSameAtALaterRelease(t *testing.T) {
	svc, kube := startWith(t, svcFlags("--release="+ofKube), "--enable-admission-plugins="+later, launch.NoServiceAccounts,
		"--runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true", "--feature-gates=ClusterTrustBundle=true")
	compareAdmission(t, svc, kube, "later admission", steps(t, "later.yaml"))
}

// TestBothServersDenyTheSame is TestBothServersAdmitTheSame for AlwaysDeny.
func TestBothServersDenyTheSame(t *testing.T) {
	const deny = "--enable-admission-plugins=AlwaysDeny"
	kube, dir := startKube(t), t.TempDir()
	first, err := launch.Up(t.Context(), dir, svcFlags()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(first.Kill)
	for _, s := range []*server{newServer(t, first.Config), kube} {
		s.makeKept(t)
	}
	first.Kill()
	again, err := launch.Up(t.Context(), dir, svcFlags(deny)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(again.Kill)
	kube.peer.Kill()
	if err := kube.peer.Again(t.Context(), deny); err != nil {
		t.Fatal(err)
	}
	compareAdmission(t, newServer(t, again.Config), kube, "denied admission", steps(t, "deny.yaml"))
}

// makeKept creates the objects that AlwaysDeny would not let a server create.
func (s *server) makeKept(t *testing.T) {
	t.Helper()
	if _, err := s.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.CoreV1().ConfigMaps("plain").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// pluginConfig is the file of the configurations of plugins: two events a second in a
// namespace, and a backend that reviews images.
func pluginConfig(t *testing.T) string {
	t.Helper()
	backend := httptest.NewServer(http.HandlerFunc(reviewImages))
	t.Cleanup(backend.Close)
	dir := t.TempDir()
	kubeconfig, file := filepath.Join(dir, "backend"), filepath.Join(dir, "plugins")
	for name, content := range map[string]string{
		kubeconfig: `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "` + backend.URL + `"}}]}`,
		file: `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: EventRateLimit
  configuration: {apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [{type: Namespace, qps: 1, burst: 2}]}
- name: ImagePolicyWebhook
  configuration: {imagePolicy: {kubeConfigFile: "` + kubeconfig + `", allowTTL: 50, denyTTL: 50, retryBackoff: 500, defaultAllow: false}}
`,
	} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// reviewImages allows all images but bad and silent, and fails for broken.
func reviewImages(w http.ResponseWriter, req *http.Request) {
	var review imagepolicyv1alpha1.ImageReview
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Status.Allowed = true
	for _, c := range review.Spec.Containers {
		switch c.Image {
		case "broken":
			http.Error(w, "the backend is broken", http.StatusNotImplemented)
			return
		case "bad":
			review.Status = imagepolicyv1alpha1.ImageReviewStatus{Reason: "the image is bad"}
		case "silent":
			review.Status = imagepolicyv1alpha1.ImageReviewStatus{}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // the server may have given up
}

// compareAdmission sends requests to both servers, and compares the responses.
func compareAdmission(t *testing.T, svc, kube *server, about string, all []step) {
	t.Helper()
	var found []difference.Difference
	plugins := readCases(t)
	for _, s := range all {
		if s.Until != "" {
			svc.await(t, s)
			kube.await(t, s)
			continue
		}
		ours, theirs := svc.send(t, s), kube.send(t, s)
		if s.Is == "" {
			for name, fields := range map[string]difference.Fields{"svc": ours, "kube-apiserver": theirs} {
				if fields["answer"] != "success" {
					t.Fatalf("%s %s: %s answers %v", s.Method, s.Path, name, fields)
				}
			}
			continue
		}
		checkCases(t, plugins, s, "svc", ours)
		checkCases(t, plugins, s, "kube-apiserver", theirs)
		s.checkOneOf(t, "svc", ours)
		s.checkOneOf(t, "kube-apiserver", theirs)
		found = append(found, difference.Between(s.Is, ours, theirs)...)
	}
	if svc.audit != "" {
		found = append(found, compareAnnotations(t, svc, kube, all)...)
	}
	report(t, about, found)
	t.Logf("%d requests", len(all))
}

// checkOneOf checks that the answer of a server to a step with OneOf is one of these, and
// removes it from what is compared.
func (s *step) checkOneOf(t *testing.T, server string, fields difference.Fields) {
	t.Helper()
	if len(s.OneOf) == 0 {
		return
	}
	if !slices.Contains(s.OneOf, fields["answer"]) {
		t.Errorf("%s: %s answers %q, want one of %q", s.Is, server, fields["answer"], s.OneOf)
	}
	delete(fields, "answer")
}

// steps reads the requests of a file, after replacements of pairs of strings.
func steps(t *testing.T, file string, replaced ...string) []step {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []step
	reader := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(strings.NewReplacer(replaced...).Replace(string(content)))))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var s step
		if err := sigsyaml.UnmarshalStrict(document, &s); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		all = append(all, s)
	}
}

// send sends the request of a step, and returns the fields of the response that are compared.
func (s *server) send(t *testing.T, st step) difference.Fields {
	t.Helper()
	config := rest.CopyConfig(s.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: st.User, Groups: st.Groups}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	body, err := json.Marshal(st.Body)
	if err != nil {
		t.Fatal(err)
	}
	method := http.MethodPost
	if st.Method != "" {
		method = st.Method
	}
	req, err := http.NewRequestWithContext(t.Context(), method, config.Host+st.Path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if st.ContentType != "" {
		req.Header.Set("Content-Type", st.ContentType)
	}
	if st.auditID != "" {
		req.Header.Set(auditv1.HeaderAuditID, st.auditID)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	content = tokenVolume.ReplaceAll(content, []byte("kube-api-access-OWN"))
	fields := difference.Fields{"warnings": strings.Join(resp.Header.Values("Warning"), "; ")}
	if resp.StatusCode >= http.StatusMultipleChoices {
		var status metav1.Status
		if err := json.Unmarshal(content, &status); err != nil {
			t.Fatalf("%s: %s", st.Path, content)
		}
		fields["answer"] = fmt.Sprintf("%d %s %s", status.Code, status.Reason, anonymous(status.Message))
		return fields
	}
	var object map[string]any
	if err := json.Unmarshal(content, &object); err != nil {
		t.Fatal(err)
	}
	withoutOwn(object)
	of, err := difference.Of(object, func(_, text string) string { return anonymous(text) })
	if err != nil {
		t.Fatal(err)
	}
	for field, value := range of {
		fields[field] = value
	}
	fields["answer"] = "success"
	return fields
}

// withoutOwn removes from an object what each server chooses itself.
func withoutOwn(object map[string]any) {
	if metadata, ok := object["metadata"].(map[string]any); ok {
		for _, ownEach := range []string{"uid", "creationTimestamp", "resourceVersion", "managedFields", "generation"} {
			delete(metadata, ownEach)
		}
		if _, deleted := metadata["deletionTimestamp"]; deleted {
			metadata["deletionTimestamp"] = "OWN"
		}
	}
}

// own matches what each server chooses itself: UIDs, and addresses of services.
var own = regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b10\.96\.\d+\.\d+\b`)

// tokenVolume matches the names of volumes of tokens, which are the keys of their fields, too.
var tokenVolume = regexp.MustCompile(`\bkube-api-access-[a-z0-9]{5}\b`)

func anonymous(text string) string { return own.ReplaceAllString(text, "OWN") }
