package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"svc.dev/svc/svclet/server"
	"svc.dev/svc/svclet/server/metrics"
)

func TestEachPortServesItsPaths(t *testing.T) {
	o := server.Defaults()
	o.CertDirectory, o.LogDirectory = sharedCertificates(t), t.TempDir()
	write(t, filepath.Join(o.LogDirectory, "messages"), []byte("hello"))
	m := metrics.New("node", clock.RealClock{})
	everything := server.Parts{
		Pods: &fakePods{}, Runtime: newFakeRuntime(t), SyncLoop: &fakeLoop{}, Requests: m,
		Configz: func() any { return map[string]string{"port": "10250"} }, SetVerbosity: func(string) error { return nil },
		Metrics: m.Gatherer(), Resource: prometheus.NewRegistry(), Cadvisor: prometheus.NewRegistry(), Probes: prometheus.NewRegistry(),
	}
	with := func(change func(*server.Options)) *server.Server {
		o := o
		if change != nil {
			change(&o)
		}
		s, err := server.New(o, everything)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	all := with(nil)
	undebugged := with(func(o *server.Options) { o.EnableDebuggingHandlers = false })
	quiet := with(func(o *server.Options) {
		o.EnableProfilingHandler, o.EnableSystemLogHandler, o.EnableDebugFlagsHandler = false, false, false
	})
	for _, c := range []struct {
		path                                                   string
		secure, readOnly, health, undebugged, withoutProfiling int
	}{
		{"/healthz", 200, 200, 200, 200, 200},
		{"/healthz/syncloop", 200, 200, 200, 200, 200},
		{"/pods", 200, 200, 404, 200, 200},
		{"/metrics", 200, 200, 404, 200, 200},
		{"/metrics/resource", 200, 200, 404, 200, 200},
		{"/metrics/cadvisor", 200, 200, 404, 200, 200},
		{"/metrics/probes", 200, 200, 404, 200, 200},
		{"/runningpods/", 200, 404, 404, 405, 200},
		{"/configz", 200, 404, 404, 404, 200},
		{"/logs/", 200, 404, 404, 405, 405},
		{"/logs/messages", 200, 404, 404, 405, 405},
		{"/debug/pprof/", 200, 404, 404, 405, 405},
		{"/debug/pprof/goroutine", 200, 404, 404, 405, 405},
		{"/debug/flags/v", 405, 404, 404, 404, 405},
		{"/exec/a/b/c", 400, 404, 404, 405, 400},
		{"/attach/a/b/c", 400, 404, 404, 405, 400},
		{"/portForward/a/b", 400, 404, 404, 405, 400},
		{"/containerLogs/a/b/c", 404, 404, 404, 405, 404},
		{"/run/a/b/c", 405, 404, 404, 405, 405},
		{"/checkpoint/a/b/c", 404, 404, 404, 404, 404},
		{"/", 404, 404, 404, 404, 404},
	} {
		for _, each := range []struct {
			name    string
			handler http.Handler
			want    int
		}{
			{"secure", all.Handler(), c.secure},
			{"read-only", all.ReadOnlyHandler(), c.readOnly},
			{"health", all.HealthHandler(), c.health},
			{"secure without debugging", undebugged.Handler(), c.undebugged},
			{"secure without logs and profiles", quiet.Handler(), c.withoutProfiling},
		} {
			if got := serve(each.handler, http.MethodGet, c.path).Code; got != each.want {
				t.Errorf("%s port: %s is answered %d, want %d", each.name, c.path, got, each.want)
			}
		}
	}
}

func TestPodsAreServedAsALists(t *testing.T) {
	n := start(t, nil)
	if _, body := n.get(t, "/pods", nil); body != `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}` {
		t.Errorf("no pods are %s", body)
	}
	n.pods.add(web())
	for path, containers := range map[string]int{"/pods": 3, "/runningpods/": 1} {
		_, body := n.get(t, path, nil)
		var list corev1.PodList
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 1 || list.Items[0].Name != "web" || len(list.Items[0].Spec.Containers) != containers {
			t.Errorf("%s is %s", path, body)
		}
	}
}

func TestACommandIsRunWithoutStreams(t *testing.T) {
	n := start(t, nil)
	n.pods.add(web())
	for query, want := range map[string]string{
		"main?cmd=ls+-l": "200 main-id[ls -l]!", "main?cmd=false": "500 command 'false' exited with 1: no\n",
		"none?cmd=ls": `500 container not found ("none")`, "uid/main?cmd=ls": "200 main-id[ls]!", "other/main?cmd=ls": "404 pod not found",
	} {
		path, q, _ := strings.Cut(query, "?")
		to := n.url("/run/default/web/"+path, nil)
		to.RawQuery = q
		code, body := fetch(t, n.client, http.MethodPost, to.String(), nil)
		if got := fmt.Sprint(code, " ", body); got != want {
			t.Errorf("%s is answered %q, want %q", query, got, want)
		}
	}
}

func TestHealthzFailsWhenTheLoopMakesNoProgress(t *testing.T) {
	now := time.Unix(1e9, 0)
	loop := &fakeLoop{}
	o := server.Defaults()
	o.CertDirectory = sharedCertificates(t)
	s, err := server.New(o, server.Parts{SyncLoop: loop, Clock: clocktesting.NewFakeClock(now)})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		last time.Time
		path string
		code int
		body string
	}{
		{time.Time{}, "/healthz", 200, "ok"},
		{now.Add(-5 * time.Minute), "/healthz", 200, "ok"},
		{now.Add(-301 * time.Second), "/healthz", 500, "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n"},
		{now.Add(-301 * time.Second), "/healthz/ping", 200, "ok"},
		{now.Add(-301 * time.Second), "/healthz/syncloop", 500, "internal server error: sync Loop took longer than expected\n"},
		{now.Add(-301 * time.Second), "/healthz?exclude=syncloop", 200, "ok"},
		{now, "/healthz?verbose", 200, "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n"},
	} {
		loop.at = c.last
		if w := serve(s.HealthHandler(), http.MethodGet, c.path); w.Code != c.code || w.Body.String() != c.body {
			t.Errorf("%s with progress at %s: %d %q, want %d %q", c.path, c.last, w.Code, w.Body, c.code, c.body)
		}
	}
}

func TestSystemLogsStayInsideTheDirectory(t *testing.T) {
	outside := t.TempDir()
	write(t, filepath.Join(outside, "shadow"), []byte("secret"))
	n := start(t, func(o *server.Options, _ *server.Parts) {
		dir := o.LogDirectory
		for _, err := range []error{
			os.MkdirAll(filepath.Join(dir, "pods/a"), 0o700),
			os.Mkdir(filepath.Join(dir, "containers"), 0o700),
			os.Symlink(filepath.Join(dir, "pods/a/0.log"), filepath.Join(dir, "containers/a.log")),
			os.Symlink("../pods", filepath.Join(dir, "containers/relative")),
			os.Symlink(filepath.Join(outside, "shadow"), filepath.Join(dir, "containers/out.log")),
			os.Symlink(outside, filepath.Join(dir, "containers/outside")),
			os.Symlink("loop", filepath.Join(dir, "loop")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		write(t, filepath.Join(dir, "pods/a/0.log"), []byte("line"))
	})
	for path, want := range map[string]string{
		"/logs/pods/a/0.log":                "200 line",
		"/logs/containers/a.log":            "200 line",
		"/logs/containers/relative/a/0.log": "200 line",
		"/logs/containers/out.log":          "404 404 page not found\n",
		"/logs/containers/outside/shadow":   "404 404 page not found\n",
		"/logs/loop":                        "404 404 page not found\n",
		"/logs/nothing":                     "404 404 page not found\n",
		"/logs/%2e%2e/%2e%2e/etc/passwd":    "404 404 page not found\n",
	} {
		to := "https://" + n.url("", nil).Host + path
		code, body := fetch(t, n.client, http.MethodGet, to, nil)
		if got := fmt.Sprint(code, " ", body); got != want && !(code == 404 && strings.HasPrefix(want, "404")) {
			t.Errorf("%s is answered %q, want %q", path, got, want)
		}
	}
	if code, body := n.get(t, "/logs/", nil); code != 200 || !strings.Contains(body, `<a href="pods/">`) {
		t.Errorf("the directory is answered %d %q", code, body)
	}
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	n := start(t, nil)
	t.Run("giant headers", func(t *testing.T) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url("/pods", nil).String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X", strings.Repeat("x", 2<<20))
		answer, err := plainClient().Do(r)
		if err == nil {
			defer answer.Body.Close()
			if answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
				t.Errorf("answered %s", answer.Status)
			}
		}
	})
	t.Run("no TLS", func(t *testing.T) {
		var d net.Dialer
		c, err := d.DialContext(t.Context(), "tcp", n.url("", nil).Host)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, "GET /pods HTTP/1.1\r\nHost: node\r\n\r\n")
		answer, err := io.ReadAll(c)
		if err != nil || !strings.Contains(string(answer), "400 Bad Request") {
			t.Errorf("answered %q, %v", answer, err)
		}
	})
	t.Run("unknown methods and paths", func(t *testing.T) {
		for _, method := range []string{"DELETE", "PATCH", "BREW"} {
			if code, _ := fetch(t, plainClient(), method, n.url("/pods", nil).String(), nil); code != http.StatusMethodNotAllowed {
				t.Errorf("%s is answered %d", method, code)
			}
		}
	})
	if code, _ := n.get(t, "/pods", nil); code != 200 {
		t.Errorf("others are answered %d", code)
	}
}

func TestStreamsEndWithTheServer(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol.name, func(t *testing.T) {
			ended := make(chan error, 1)
			input, never := io.Pipe()
			defer never.Close()
			t.Run("serving", func(t *testing.T) {
				n := start(t, nil)
				n.pods.add(web())
				executor, err := protocol.dial(n, n.url("/exec/default/web/main", wanted("input output", "idle")))
				if err != nil {
					t.Fatal(err)
				}
				began := make(chan struct{}, 1)
				go func() {
					ended <- executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{
						Stdin: input, Stdout: afterFirst{func() { began <- struct{}{} }},
					})
				}()
				<-began
			}) // the server stops
			never.Close()
			t.Logf("the client's stream has ended with %v", <-ended)
		})
	}
}

func logged(n *node, path string, state runtimeapi.ContainerState) {
	n.runtime.mu.Lock()
	defer n.runtime.mu.Unlock()
	n.runtime.statuses["main-id"] = &runtimeapi.ContainerStatus{Id: "main-id", LogPath: path, State: state}
}

const log = "2026-01-01T00:00:01.000000000Z stdout F one\n" +
	"2026-01-01T00:00:02.000000000Z stderr F two\n" +
	"2026-01-01T00:00:03.000000000Z stdout P thr\n" +
	"2026-01-01T00:00:03.000000000Z stdout F ee\n"

func TestLogsOfContainers(t *testing.T) {
	n := start(t, func(_ *server.Options, p *server.Parts) {
		p.Clock = clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 4, 0, time.UTC))
	})
	n.pods.add(web())
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, []byte(log))
	logged(n, path, runtimeapi.ContainerState_CONTAINER_EXITED)
	for query, want := range map[string]string{
		"":                               "200 one\ntwo\nthree\n",
		"follow=true":                    "200 one\ntwo\nthree\n",
		"tailLines=2":                    "200 three\n", // of the file, in which a partial line is one
		"tailLines=0":                    "200 ",
		"tail=all":                       "200 one\ntwo\nthree\n",
		"tail=3":                         "200 two\nthree\n",
		"limitBytes=5":                   "200 one\nt",
		"timestamps=true&stream=Stderr":  "200 2026-01-01T00:00:02.000000000Z two\n",
		"stream=Stdout":                  "200 one\nthree\n",
		"stream=All":                     "200 one\ntwo\nthree\n",
		"sinceSeconds=2":                 "200 two\nthree\n",
		"sinceTime=2026-01-01T00:00:03Z": "200 three\n",
		"insecureSkipTLSVerifyBackend=1": "200 one\ntwo\nthree\n",
		"stream=Other":                   "422 {\"message\": \"Invalid request.\"}\n",
		"stream=Stdout&tailLines=1":      "422 {\"message\": \"Invalid request.\"}\n",
		"tailLines=-1":                   "422 {\"message\": \"Invalid request.\"}\n",
		"limitBytes=0":                   "422 {\"message\": \"Invalid request.\"}\n",
		"sinceSeconds=9223372037":        "200 one\ntwo\nthree\n", // more than a duration can be
		"sinceSeconds=0":                 "422 {\"message\": \"Invalid request.\"}\n",
		"sinceSeconds=1&sinceTime=2026-01-01T00:00:03Z": "422 {\"message\": \"Invalid request.\"}\n",
		"tailLines=many":      "400 {\"message\": \"Unable to decode query.\"}\n",
		"sinceTime=yesterday": "400 {\"message\": \"Unable to decode query.\"}\n",
		"previous=true":       "400 previous terminated container \"main\" in pod \"web\" not found\n",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		code, body := n.get(t, "/containerLogs/default/web/main", q)
		if got := fmt.Sprint(code, " ", body); got != want {
			t.Errorf("%s is answered %q, want %q", query, got, want)
		}
	}
}

func TestInvalidLogRequestsAreRefused(t *testing.T) {
	n := start(t, nil)
	n.pods.add(web())
	for path, want := range map[string]string{
		"/containerLogs/default/none/main": "404 pod \"none\" does not exist\n",
		"/containerLogs/default/web/none":  "404 container \"none\" not found in pod \"web\"\n",
		"/containerLogs/default/web/done":  "400 container \"done\" in pod \"web\" is not available\n",
		"/containerLogs/default/web/main":  "400 unable to retrieve container logs for fake://main-id\n",
	} {
		code, body := n.get(t, path, nil)
		if got := fmt.Sprint(code, " ", body); got != want {
			t.Errorf("%s is answered %q, want %q", path, got, want)
		}
	}
	logged(n, "/nowhere/0.log", runtimeapi.ContainerState_CONTAINER_EXITED)
	if code, body := n.get(t, "/containerLogs/default/web/main", nil); code != 400 || !strings.Contains(body, "failed to try resolving symlinks in path") {
		t.Errorf("a log that is gone is answered %d %q", code, body)
	}
}

func TestLoggedContainerSelectsByNameAndPrevious(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	terminated := func(id string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: id}}
	}
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	for _, c := range []struct {
		state, last corev1.ContainerState
		previous    bool
		want        string
	}{
		{state: running, want: "fake://now"},
		{state: running, last: terminated("fake://before"), previous: true, want: "fake://before"},
		{state: running, previous: true, want: `previous terminated container "c" in pod "p" not found`},
		{state: terminated("fake://now"), want: "fake://now"},
		{state: terminated(""), last: terminated("fake://before"), want: "fake://before"},
		{state: terminated(""), want: `container "c" in pod "p" is terminated`},
		{state: waiting("CrashLoopBackOff"), last: terminated("fake://before"), want: "fake://before"},
		{state: waiting("CrashLoopBackOff"), last: terminated(""), want: `container "c" in pod "p" is terminated`},
		{state: waiting("ContainerCreating"), want: `container "c" in pod "p" is waiting to start: ContainerCreating`},
		{state: waiting("ErrImagePull"), want: `container "c" in pod "p" is waiting to start: image can't be pulled`},
		{state: waiting("ImagePullBackOff"), want: `container "c" in pod "p" is waiting to start: trying and failing to pull image`},
		{want: `container "c" in pod "p" is waiting to start - no logs yet`},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{
			{Name: "c", ContainerID: "fake://now", State: c.state, LastTerminationState: c.last},
		}}}
		got, err := server.LoggedContainer(p, "c", c.previous)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v, before %+v, previous=%t: %q, want %q", c.state, c.last, c.previous, got, c.want)
		}
	}
}

func TestLogsAreFollowedUntilTheContainerEnds(t *testing.T) {
	n := start(t, nil)
	n.pods.add(web())
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, []byte(log))
	logged(n, path, runtimeapi.ContainerState_CONTAINER_RUNNING)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url("/containerLogs/default/web/main", url.Values{"follow": {"true"}}).String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := n.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for i, want := range []string{"one", "two", "three", "four"} {
		if i == 3 {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteString("2026-01-01T00:00:04.000000000Z stdout F four\n")
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
			logged(n, path, runtimeapi.ContainerState_CONTAINER_EXITED)
		}
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("read %q, %v, want %q", lines.Text(), lines.Err(), want)
		}
	}
	if lines.Scan() {
		t.Errorf("read %q after the end", lines.Text())
	}
}

func TestADisconnectedFollowerLeavesNoGoroutine(t *testing.T) {
	n := start(t, nil)
	n.pods.add(web())
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, []byte(log))
	logged(n, path, runtimeapi.ContainerState_CONTAINER_RUNNING)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url("/containerLogs/default/web/main", url.Values{"follow": {"true"}}).String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := n.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(answer.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
}

// noStats are empty statistics.
type noStats struct{ asked *bool }

func (s noStats) Summary(_ context.Context, only bool) (*statsapi.Summary, error) {
	*s.asked = only
	return &statsapi.Summary{}, nil
}

func TestTheSummarysFormIsLimitedInSize(t *testing.T) {
	only := false
	n := start(t, func(_ *server.Options, p *server.Parts) { p.Stats = noStats{&only} })
	for form, want := range map[string]int{
		"only_cpu_and_memory=true":                                http.StatusOK,
		"only_cpu_and_memory=true&x=" + strings.Repeat("x", 4096): http.StatusInternalServerError,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.url("/stats/summary", nil).String(), strings.NewReader(form))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		answer, err := plainClient().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want || only != (want == http.StatusOK) {
			t.Errorf("a form of %d bytes is answered with %d, want %d; processors and memory alone: %t", len(form), answer.StatusCode, want, only)
		}
		only = false
	}
}
