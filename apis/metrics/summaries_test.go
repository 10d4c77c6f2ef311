package metrics

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/warning"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource"
)

// agents answers for the agents of all nodes and records the requests.
type agents struct {
	mu           sync.Mutex
	answer       func(ctx context.Context, host string) (int, string, error)
	asked        []string
	open, widest int
}

// RoundTrip implements http.RoundTripper.
func (a *agents) RoundTrip(req *http.Request) (*http.Response, error) {
	a.mu.Lock()
	a.asked = append(a.asked, req.URL.String())
	a.open++
	a.widest = max(a.widest, a.open)
	a.mu.Unlock()
	code, body, err := a.answer(req.Context(), req.URL.Host)
	a.mu.Lock()
	a.open--
	a.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: code, Status: fmt.Sprint(code), Body: io.NopCloser(strings.NewReader(body))}, nil
}

// objects holds the objects of one core resource.
type objects struct {
	resource.Objects
	name string
	all  []runtime.Object
}

func (o objects) Get(_ context.Context, namespace, name string) (runtime.Object, error) {
	for _, obj := range o.all {
		if m := obj.(metav1.Object); m.GetNamespace() == namespace && m.GetName() == name {
			return obj, nil
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource(o.name), name)
}

func (o objects) ListCached(_ context.Context, _ string, selector labels.Selector) ([]runtime.Object, error) {
	return slices.DeleteFunc(slices.Clone(o.all), func(obj runtime.Object) bool {
		return !selector.Matches(labels.Set(obj.(metav1.Object).GetLabels()))
	}), nil
}

// cluster returns an environment with n nodes, node-0 and so on, with one pod each.
func cluster(a *agents, n int) *resource.Env {
	nodes, pods := objects{name: "nodes"}, objects{name: "pods"}
	for i := range n {
		name := fmt.Sprintf("node-%d", i)
		nodes.all = append(nodes.all, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}},
		}})
		pods.all = append(pods.all, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("pod-%d", i), UID: "uid"}, Spec: corev1.PodSpec{NodeName: name},
		})
	}
	return &resource.Env{
		Clock:  clock.RealClock{},
		Agents: resource.Agents{Transport: a, AddressTypes: []corev1.NodeAddressType{corev1.NodeHostName}},
		Objects: func(gr schema.GroupResource) resource.Objects {
			return map[string]objects{"nodes": nodes, "pods": pods}[gr.Resource]
		},
	}
}

// summaryOf returns the summary of a node of cluster.
func summaryOf(host string) string {
	name, _, _ := strings.Cut(host, ":")
	cpu, memory := &statsapi.CPUStats{UsageNanoCores: ptr.To[uint64](5e8)}, &statsapi.MemoryStats{WorkingSetBytes: ptr.To[uint64](1 << 30)}
	body, err := json.Marshal(statsapi.Summary{
		Node: statsapi.NodeStats{NodeName: name, CPU: cpu, Memory: memory},
		Pods: []statsapi.PodStats{{
			PodRef:     statsapi.PodReference{Namespace: "ns", Name: strings.Replace(name, "node", "pod", 1), UID: "uid"},
			Containers: []statsapi.ContainerStats{{Name: "c", CPU: cpu, Memory: memory}},
		}},
	})
	if err != nil {
		panic(err)
	}
	return string(body)
}

func answers(_ context.Context, host string) (int, string, error) {
	return http.StatusOK, summaryOf(host), nil
}

// read lists a kind and returns the names of its objects.
func read(ctx context.Context, t *testing.T, k *resource.Kind, env *resource.Env) []string {
	t.Helper()
	selection := resource.Selection{Labels: labels.Everything(), Fields: fields.Everything()}
	found, err := k.Computed.List(ctx, env, selection)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, obj := range found {
		names = append(names, obj.(metav1.Object).GetName())
	}
	return names
}

func TestFetchesInFlightAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &agents{answer: func(ctx context.Context, host string) (int, string, error) {
			time.Sleep(time.Second)
			return answers(ctx, host)
		}}
		began := time.Now()
		if known := read(t.Context(), t, Kinds()[0].Kind(), cluster(a, 250)); len(known) != 250 || known[17] != "node-17" {
			t.Errorf("listed %v", known)
		}
		if took := time.Since(began); a.widest != maxConcurrent || took != 3*time.Second {
			t.Errorf("%d were asked at a time, and all in %v", a.widest, took)
		}
		time.Sleep(cacheTTL)
	})
}

func TestRequestsShareAFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &agents{answer: func(ctx context.Context, host string) (int, string, error) {
			time.Sleep(time.Second)
			return answers(ctx, host)
		}}
		kinds, env := Kinds(), cluster(a, 1)
		var asking sync.WaitGroup
		impatient, leave := context.WithCancel(t.Context())
		for _, ctx := range []context.Context{impatient, t.Context(), t.Context()} {
			asking.Go(func() {
				_, err := kinds[1].Kind().Computed.Get(ctx, env, "ns", "pod-0")
				if gone := ctx.Err() != nil; (err != nil) != gone {
					t.Errorf("%v", err)
				}
			})
		}
		synctest.Wait()
		leave() // the first request must not cancel the fetch of the others
		asking.Wait()
		if len(read(t.Context(), t, kinds[0].Kind(), env)) != 1 || !slices.Equal(a.asked, []string{"https://node-0:10250/stats/summary?only_cpu_and_memory=true"}) {
			t.Errorf("asked %v", a.asked)
		}
		time.Sleep(cacheTTL)
		synctest.Wait()
		read(t.Context(), t, kinds[0].Kind(), env)
		if len(a.asked) != 2 {
			t.Error("an expired summary is used again")
		}
		time.Sleep(cacheTTL)
	})
}

func TestAFetchThatIsCanceledIsNotInTheCache(t *testing.T) {
	f := &fetch{url: "https://node-0", users: 1, done: make(chan struct{})}
	f.cancel = func() { close(f.done) } // as a fetch that ends at once
	s := newSummaries()
	s.fetches[f.url] = f
	s.leave(map[string]*fetch{"node-0": f})
	if len(s.fetches) > 0 {
		t.Error("its error is used again")
	}
}

// warnings records the warnings of a client.
type warnings struct{ bytes.Buffer }

// AddWarning implements warning.Recorder.
func (w *warnings) AddWarning(_, text string) { fmt.Fprintln(w, text) }

func TestAgentsThatDoNotAnswerAreLeftOutWithAWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &agents{answer: func(ctx context.Context, host string) (int, string, error) {
			switch host {
			case "node-0:10250":
				<-ctx.Done()
				return 0, "", ctx.Err()
			case "node-1:10250":
				return http.StatusForbidden, "", nil
			case "node-2:10250":
				return http.StatusOK, `{"node": {"cpu`, nil
			case "node-3:10250", "node-4:10250":
				return 0, "", errors.New("connection refused")
			}
			return answers(ctx, host)
		}}
		warned := &warnings{}
		ctx := warning.WithWarningRecorder(t.Context(), warned)
		if known := read(ctx, t, Kinds()[1].Kind(), cluster(a, 6)); !slices.Equal(known, []string{"pod-5"}) {
			t.Errorf("listed %v", known)
		}
		want := `node "node-0" and its pods are left out: its agent has not answered within 5s
node "node-1" and its pods are left out: its agent answers 403
node "node-2" and its pods are left out: its agent's answer cannot be read: unexpected EOF
2 more nodes and their pods are left out
`
		if warned.String() != want {
			t.Errorf("warnings\n%swant\n%s", warned, want)
		}
		time.Sleep(cacheTTL)
	})
}

func TestARequestIsAnsweredWithinItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &agents{answer: func(ctx context.Context, host string) (int, string, error) {
			<-ctx.Done()
			return 0, "", ctx.Err()
		}}
		began := time.Now()
		if known := read(t.Context(), t, Kinds()[0].Kind(), cluster(a, 5*maxConcurrent)); len(known) != 0 || time.Since(began) != requestTimeout {
			t.Errorf("listed %v, after %v", known, time.Since(began))
		}
		time.Sleep(time.Minute)
	})
}

func TestASummaryIsBoundedInSize(t *testing.T) {
	a := &agents{answer: func(context.Context, string) (int, string, error) {
		return http.StatusOK, `{"node": {"nodeName": "` + strings.Repeat("x", maxSummaryBytes), nil
	}}
	if known := read(t.Context(), t, Kinds()[0].Kind(), cluster(a, 1)); len(known) != 0 {
		t.Errorf("listed %v", known)
	}
}

func TestAServerWithoutAnAgentCAIsUnavailable(t *testing.T) {
	env := cluster(nil, 1)
	env.Agents.Transport = nil
	for _, d := range Kinds() {
		_, err := d.Kind().Computed.List(t.Context(), env, resource.Selection{Labels: labels.Everything(), Fields: fields.Everything()})
		if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "--svclet-certificate-authority") {
			t.Errorf("%s: %v", d.Kind().Name, err)
		}
	}
}
