package imagepolicy

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clocktesting "k8s.io/utils/clock/testing"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

// backend refuses images of the name "bad" and does not answer for "broken".
type backend struct {
	kubeconfig string
	requests   atomic.Int32
	last       atomic.Pointer[imagepolicyv1alpha1.ImageReview]
}

func newBackend(t *testing.T) *backend {
	t.Helper()
	b := &backend{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.requests.Add(1)
		review := &imagepolicyv1alpha1.ImageReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		b.last.Store(review)
		review.Status.Allowed = true
		review.Status.AuditAnnotations = map[string]string{"seen": "yes"}
		for _, c := range review.Spec.Containers {
			switch c.Image {
			case "bad":
				review.Status.Allowed, review.Status.Reason = false, "it is bad"
			case "broken":
				http.Error(w, "broken", http.StatusBadRequest)
				return
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["backend"] = &clientcmdapi.Cluster{
		Server: server.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	config.Contexts["backend"] = &clientcmdapi.Context{Cluster: "backend"}
	config.CurrentContext = "backend"
	b.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, b.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return b
}

func image(name string) *corev1.Pod {
	return admissiontest.Pod(func(p *corev1.Pod) {
		p.Spec.Containers[0].Image = name
		p.Annotations = map[string]string{"team.image-policy.k8s.io/ticket": "7", "other": "x"}
	})
}

func TestTheBackendDecides(t *testing.T) {
	b := newBackend(t)
	for _, test := range []struct {
		rule, image string
		config      string
		err         string
		annotation  string
	}{
		{rule: "an image that it allows", image: "good"},
		{rule: "an image that it denies", image: "bad", err: `pods "pod" is forbidden: image policy webhook backend denied one or more images: it is bad`},
		{rule: "no answer", image: "broken", err: `pods "pod" is forbidden: `},
		{rule: "no answer, and pods are allowed then", image: "broken", config: ", defaultAllow: true", annotation: "true"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			config := fmt.Sprintf("imagePolicy: {kubeConfigFile: %s, retryBackoff: 1%s}", b.kubeconfig, test.config)
			pod := image(test.image)
			err := admissiontest.Server{Config: strings.NewReader(config)}.Start(t, Register).Send(t, admissiontest.Request{Object: pod})
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.HasPrefix(err.Error(), test.err)) {
				t.Errorf("got %v, want %s", err, test.err)
			}
			if got := pod.Annotations["alpha.image-policy.k8s.io/failed-open"]; got != test.annotation {
				t.Errorf("annotation %q", got)
			}
			if got := b.last.Load().Spec; got.Namespace != "ns" || len(got.Annotations) != 1 || got.Annotations["team.image-policy.k8s.io/ticket"] != "7" {
				t.Errorf("asked %+v", got)
			}
		})
	}
}

func TestAnswersAreUsedAgainForTheirTime(t *testing.T) {
	b := newBackend(t)
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	made, err := newPlugin(config{KubeConfigFile: b.kubeconfig, AllowTTL: 10, DenyTTL: -1}, clock)
	if err != nil {
		t.Fatal(err)
	}
	p := &admissiontest.Plugin{Interface: made}
	ask := func(name string) int32 {
		before := b.requests.Load()
		_ = p.Send(t, admissiontest.Request{Object: image(name)})
		return b.requests.Load() - before
	}
	if first, second := ask("good"), ask("good"); first != 1 || second != 0 {
		t.Errorf("asked %d times, then %d", first, second)
	}
	clock.Step(11 * time.Second)
	if got := ask("good"); got != 1 {
		t.Errorf("asked %d times after the answer's time", got)
	}
	if first, second := ask("bad"), ask("bad"); first != 1 || second != 1 {
		t.Errorf("a refusal that is not kept: asked %d times, then %d", first, second)
	}
}

func TestEphemeralContainersAreReviewed(t *testing.T) {
	b := newBackend(t)
	p := admissiontest.Server{Config: strings.NewReader("imagePolicy: {kubeConfigFile: " + b.kubeconfig + "}")}.Start(t, Register)
	pod := image("bad")
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Image: "good"}}}
	if err := p.Send(t, admissiontest.Request{Object: pod, Old: image("bad"), Subresource: "ephemeralcontainers"}); err != nil {
		t.Error(err)
	}
}

func TestAnInvalidConfigurationIsNamed(t *testing.T) {
	b := newBackend(t)
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for config, want := range map[string]string{
		"":                                     "imagePolicy.kubeConfigFile",
		"imagePolicy: {kubeConfigFile: /none}": "/none",
		"imagePolicy: {kubeConfigFile: " + b.kubeconfig + ", allowTTL: 1801}":   "imagePolicy.allowTTL: valid value is between 1s and 30m0s, got 1801",
		"imagePolicy: {kubeConfigFile: " + b.kubeconfig + ", retryBackoff: -2}": "imagePolicy.retryBackoff",
		"imagePolicy: {kubeConfigFile: " + b.kubeconfig + ", ttl: 1}":           `unknown field "ttl"`,
	} {
		s := admissiontest.Server{}
		if config != "" {
			s.Config = strings.NewReader(config)
		}
		if _, err := s.TryStart(t, Register); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "configuration of ImagePolicyWebhook") {
			t.Errorf("%q: %v, want %s", config, err, want)
		}
	}
}
