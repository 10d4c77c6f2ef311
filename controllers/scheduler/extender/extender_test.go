package extender

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	configv1 "k8s.io/kube-scheduler/config/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// answering returns a server that records what it is asked, as "verb body", and answers
// each verb.
func answering(t *testing.T, answers map[string]string) (server *httptest.Server, asked *[]string) {
	t.Helper()
	asked = &[]string{}
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		*asked = append(*asked, r.Method+" "+r.URL.Path+" "+string(body))
		answer, ok := answers[strings.TrimPrefix(r.URL.Path, "/scheduler/")]
		if !ok {
			http.Error(w, "out of order", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(server.Close)
	return server, asked
}

// verbs is the configuration of an extender with all verbs but bind.
func verbs(server *httptest.Server) configv1.Extender {
	return configv1.Extender{URLPrefix: server.URL + "/scheduler/", FilterVerb: "filter", PrioritizeVerb: "prioritize", PreemptVerb: "preempt", Weight: 2}
}

func during(t *testing.T, config configv1.Extender) *asked {
	t.Helper()
	e, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return e.During(t.Context()).(*asked)
}

func node(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

var web = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "1"}}

func TestFilterSendsNodesOrNames(t *testing.T) {
	for _, test := range []struct {
		name   string
		cached bool
		answer string
		sent   func(extenderv1.ExtenderArgs) bool
	}{
		{"nodes", false, `{"Nodes": {"items": [{"metadata": {"name": "a"}}]}, "FailedNodes": {"b": "no device"}, "FailedAndUnresolvableNodes": {"c": "no licence"}}`,
			func(args extenderv1.ExtenderArgs) bool { return args.NodeNames == nil && len(args.Nodes.Items) == 3 }},
		{"names", true, `{"NodeNames": ["a"], "FailedNodes": {"b": "no device"}, "FailedAndUnresolvableNodes": {"c": "no licence"}}`,
			func(args extenderv1.ExtenderArgs) bool { return args.Nodes == nil && len(*args.NodeNames) == 3 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			server, asked := answering(t, map[string]string{"filter": test.answer})
			config := verbs(server)
			config.NodeCacheCapable = test.cached
			got, err := during(t, config).Filter(web, []*corev1.Node{node("a"), node("b"), node("c")})
			if err != nil || !got.Accepted.Equal(sets.New("a")) || got.Rejected["b"] != "no device" || got.Unresolvable["c"] != "no licence" {
				t.Errorf("got %+v, %v", got, err)
			}
			body, ok := strings.CutPrefix((*asked)[0], "POST /scheduler/filter ")
			var args extenderv1.ExtenderArgs
			if err := json.Unmarshal([]byte(body), &args); err != nil || !ok || args.Pod.Name != "web" || !test.sent(args) {
				t.Errorf("sent %s: %v", (*asked)[0], err)
			}
		})
	}
}

func TestFilterFails(t *testing.T) {
	for name, answer := range map[string]string{
		"an error":                      `{"Error": "no licence server"}`,
		"a node that is not in request": `{"NodeNames": ["b"]}`,
		"no JSON":                       `<html>`,
	} {
		t.Run(name, func(t *testing.T) {
			server, _ := answering(t, map[string]string{"filter": answer})
			config := verbs(server)
			config.NodeCacheCapable = true
			if got, err := during(t, config).Filter(web, []*corev1.Node{node("a")}); err == nil || !strings.HasPrefix(err.Error(), "extender "+config.URLPrefix+": filter: ") {
				t.Errorf("got %+v, %v", got, err)
			}
			config.Ignorable = true
			if got, err := during(t, config).Filter(web, []*corev1.Node{node("a")}); err != nil || !got.Accepted.Equal(sets.New("a")) {
				t.Errorf("if it may be ignored: got %+v, %v", got, err)
			}
		})
	}
}

func TestPriorityCountsTenTimesItsWeight(t *testing.T) {
	server, _ := answering(t, map[string]string{"prioritize": `[{"Host": "a", "Score": 10}, {"Host": "b", "Score": 1}]`})
	if got := during(t, verbs(server)).Prioritize(web, []*corev1.Node{node("a"), node("b")}); got["a"] != 200 || got["b"] != 20 {
		t.Errorf("got %v", got)
	}
}

func TestExtenderThatFailsHasNoPreference(t *testing.T) {
	server, _ := answering(t, nil)
	if got := during(t, verbs(server)).Prioritize(web, []*corev1.Node{node("a")}); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestPreemptSendsPodsOrIdentifiers(t *testing.T) {
	for _, cached := range []bool{false, true} {
		server, asked := answering(t, map[string]string{"preempt": `{"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "1"}], "NumPDBViolations": 1}}}`})
		config := verbs(server)
		config.NodeCacheCapable = cached
		got, err := during(t, config).Preempt(web, map[string]*extenderv1.Victims{"a": {Pods: []*corev1.Pod{web}}, "b": {Pods: []*corev1.Pod{web}}})
		if err != nil || len(got) != 1 || got["a"].Pods[0].UID != "1" || got["a"].NumPDBViolations != 1 {
			t.Errorf("got %v, %v", got, err)
		}
		var args extenderv1.ExtenderPreemptionArgs
		if err := json.Unmarshal([]byte(strings.TrimPrefix((*asked)[0], "POST /scheduler/preempt ")), &args); err != nil {
			t.Fatal(err)
		}
		if pods, ids := len(args.NodeNameToVictims), len(args.NodeNameToMetaVictims); cached && (pods != 0 || ids != 2) || !cached && (pods != 2 || ids != 0) {
			t.Errorf("sent %s", (*asked)[0])
		}
	}
}

func TestPreemptFails(t *testing.T) {
	candidates := map[string]*extenderv1.Victims{"a": {Pods: []*corev1.Pod{web}}}
	for name, answers := range map[string]map[string]string{
		"no answer":                 nil,
		"a node without victims":    {"preempt": `{"NodeNameToMetaVictims": {"a": {"Pods": []}}}`},
		"a node not in the request": {"preempt": `{"NodeNameToMetaVictims": {"b": {"Pods": [{"UID": "1"}]}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			server, _ := answering(t, answers)
			config := verbs(server)
			if got, err := during(t, config).Preempt(web, candidates); err == nil {
				t.Errorf("got %v", got)
			}
			config.Ignorable = true
			if got, err := during(t, config).Preempt(web, candidates); err != nil || got["a"].Pods[0].UID != "1" {
				t.Errorf("if it may be ignored: got %v, %v", got, err)
			}
		})
	}
}

func TestVerbsThatAreNotSetAreNotSent(t *testing.T) {
	server, sent := answering(t, nil)
	e := during(t, configv1.Extender{URLPrefix: server.URL})
	filtered, err := e.Filter(web, []*corev1.Node{node("a")})
	if err != nil || !filtered.Accepted.Has("a") {
		t.Errorf("filter: got %v, %v", filtered, err)
	}
	if got := e.Prioritize(web, []*corev1.Node{node("a")}); got != nil {
		t.Errorf("prioritize: got %v", got)
	}
	if got, err := e.Preempt(web, map[string]*extenderv1.Victims{"a": {Pods: []*corev1.Pod{web}}}); err != nil || len(got) != 1 {
		t.Errorf("preempt: got %v, %v", got, err)
	}
	if e.Binds() || len(*sent) > 0 {
		t.Errorf("sent %q", *sent)
	}
}

func TestExtenderIsForPodsThatNameItsResources(t *testing.T) {
	e := during(t, configv1.Extender{URLPrefix: "http://localhost", ManagedResources: []configv1.ExtenderManagedResource{{Name: "example.com/gpu"}}})
	gpu := corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	other := corev1.ResourceList{"cpu": resource.MustParse("1")}
	for _, test := range []struct {
		name string
		spec corev1.PodSpec
		want bool
	}{
		{"none", corev1.PodSpec{Containers: []corev1.Container{{}}}, false},
		{"another", corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: other}}}}, false},
		{"a request", corev1.PodSpec{Containers: []corev1.Container{{}, {Resources: corev1.ResourceRequirements{Requests: gpu}}}}, true},
		{"a limit", corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: gpu}}}}, true},
		{"an init container", corev1.PodSpec{InitContainers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: gpu}}}}, true},
	} {
		if got := e.Extends(&corev1.Pod{Spec: test.spec}); got != test.want {
			t.Errorf("%s: got %t", test.name, got)
		}
	}
}

func TestCertificateIsVerified(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"NodeNames": ["a"]}`) }))
	server.StartTLS()
	defer server.Close()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for _, test := range []struct {
		name string
		tls  *configv1.ExtenderTLSConfig
		want bool
	}{
		{"unknown authority", nil, false},
		{"its authority", &configv1.ExtenderTLSConfig{CAData: authority}, true},
		{"another name", &configv1.ExtenderTLSConfig{CAData: authority, ServerName: "other.example.org"}, false},
		{"insecure", &configv1.ExtenderTLSConfig{Insecure: true}, true},
	} {
		config := verbs(server)
		config.EnableHTTPS, config.TLSConfig, config.NodeCacheCapable = true, test.tls, true
		if _, err := during(t, config).Filter(web, []*corev1.Node{node("a")}); (err == nil) != test.want {
			t.Errorf("%s: got %v", test.name, err)
		}
	}
}

func TestRequestsEnd(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(release)
	config := verbs(server)
	config.HTTPTimeout.Duration = time.Millisecond
	if _, err := during(t, config).Filter(web, []*corev1.Node{node("a")}); err == nil || !strings.Contains(err.Error(), "Client.Timeout exceeded") {
		t.Errorf("got %v", err)
	}
}
