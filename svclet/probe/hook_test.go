package probe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"svc.dev/svc/svclet/pod"
)

func TestAFailedHookHasFewerDetailsInTheEventThanInTheStatus(t *testing.T) {
	exec := func(_ context.Context, _ string, command []string, timeout time.Duration) ([]byte, []byte, int32, error) {
		if timeout != 0 {
			t.Errorf("timeout %s: only the context bounds a hook", timeout)
		}
		switch command[0] {
		case "fail":
			return []byte("out"), []byte("err"), 2, nil
		case "error":
			return nil, nil, 0, fmt.Errorf("run a command: %w", status.Error(codes.Unavailable, "no runtime"))
		}
		return nil, nil, 0, nil
	}
	for _, c := range []struct {
		name    string
		handler *corev1.LifecycleHandler
		want    string
	}{
		{"none", nil, ""},
		{"exec", &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}, ""},
		{"exec fails", &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"fail", "now"}}},
			`Exec lifecycle hook ([fail now]) for Container "c" in Pod "p_ns(uid)" failed - error: command 'fail now' exited with 2: err, message: "outerr"`},
		{"exec cannot be made", &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"error"}}},
			`Exec lifecycle hook ([error]) for Container "c" in Pod "p_ns(uid)" failed - error: rpc error: code = Unavailable desc = no runtime, message: ""`},
		{"http cannot be made", &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/x", Port: intstr.FromString("no")}},
			`HTTP lifecycle hook (/x) for Container "c" in Pod "p_ns(uid)" failed - error: strconv.Atoi: parsing "no": invalid syntax`},
		{"sleep of no time", &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{}}, ""},
		{"a TCP socket is no hook", &corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{}}, "Cannot run handler: invalid handler: "},
	} {
		for _, kind := range []HookKind{PostStart, PreStop} {
			t.Run(c.name+" "+string(kind), func(t *testing.T) {
				var j journal
				p := podOf(1, "c")
				p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: c.handler, PreStop: c.handler}
				err := newManager(&j, exec).Hook(t.Context(), kind, p, &p.Spec.Containers[0], "id-c", "127.0.0.1")
				events, _ := j.take()
				if c.want == "" {
					if err != nil || len(events) > 0 {
						t.Fatalf("got %v, events %q", err, events)
					}
					return
				}
				if err == nil || !strings.HasPrefix(err.Error(), c.want) {
					t.Errorf("got %v\nwant %s", err, c.want)
				}
				want(t, "events", events, fmt.Sprintf("Warning Failed%sHook p/c: %sHook failed", kind, kind))
			})
		}
	}
}

func TestAContainerWithoutLifecycleHasNoHooks(t *testing.T) {
	p := podOf(1, "c")
	if err := newManager(new(journal), nil).Hook(t.Context(), PreStop, p, &p.Spec.Containers[0], "id-c", ""); err != nil {
		t.Error(err)
	}
}

func TestAnyAnswerToAnHTTPHookIsASuccess(t *testing.T) {
	var agent string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agent = r.UserAgent()
		http.Error(w, "no", http.StatusInternalServerError)
	}))
	defer server.Close()
	p := podOf(portOfServer(t, server), "c")
	p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("web")}}}
	if err := newManager(new(journal), nil).Hook(t.Context(), PostStart, p, &p.Spec.Containers[0], "id-c", "127.0.0.1"); err != nil {
		t.Error(err)
	}
	if agent != "kube-lifecycle/1.36" {
		t.Errorf("user agent %q", agent)
	}
}

func TestAnHTTPSHookFallsBackToHTTPWithoutItsCredentials(t *testing.T) {
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer server.Close()
	var j journal
	m := newManager(&j, nil)
	p := podOf(portOfServer(t, server), "c")
	p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{
		Scheme: corev1.URISchemeHTTPS, Port: intstr.FromString("web"),
		HTTPHeaders: []corev1.HTTPHeader{{Name: "Authorization", Value: "secret"}, {Name: "X-A", Value: "1"}},
	}}}
	if err := m.Hook(t.Context(), PreStop, p, &p.Spec.Containers[0], "id-c", "127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	if got.Get("Authorization") != "" || got.Get("X-A") != "1" {
		t.Errorf("headers %v", got)
	}
	events, _ := j.take()
	want(t, "events", events, fmt.Sprintf("Warning LifecycleHTTPFallback p/: request to HTTPS lifecycle hook 127.0.0.1:%d got HTTP response, retry with HTTP succeeded", portOfServer(t, server)))
	if n := testutil.ToFloat64(m.metrics.httpFallbacks); n != 1 {
		t.Errorf("counted %v fallbacks", n)
	}

	server.Close()
	if err := m.Hook(t.Context(), PreStop, p, &p.Spec.Containers[0], "id-c", "127.0.0.1"); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v", err)
	}
}

func TestACancelledHookHasNoEvent(t *testing.T) {
	for _, handler := range []corev1.LifecycleHandler{
		{Sleep: &corev1.SleepAction{Seconds: 3600}},
		{Exec: &corev1.ExecAction{Command: []string{"sleep"}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var j journal
			m := newManager(&j, func(ctx context.Context, _ string, _ []string, _ time.Duration) ([]byte, []byte, int32, error) {
				<-ctx.Done()
				return nil, nil, 0, ctx.Err()
			})
			p := podOf(1, "c")
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &handler}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			began := time.Now()
			err := m.Hook(ctx, PreStop, p, &p.Spec.Containers[0], "id-c", "")
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 30*time.Second {
				t.Errorf("after %s: %v", time.Since(began), err)
			}
			if events, _ := j.take(); len(events) > 0 {
				t.Errorf("events %q", events)
			}
		})
	}
}

func TestMetricsAreKubeletsAndDeletedWithThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.stop()
		runs := 0
		b.answer(func(context.Context, pod.ProbeKind) (int32, error) {
			runs++
			return int32(runs % 2), nil
		})
		b.Sync("uid", podOf(1, "c"), "", []pod.Probe{execProbe(pod.Readiness, time.Now(), nil)})
		b.after(21 * time.Second)
		const total = `# HELP prober_probe_total [BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.
# TYPE prober_probe_total counter
prober_probe_total{container="c",namespace="ns",pod="p",pod_uid="uid",probe_type="Readiness",result="failed"} 2
prober_probe_total{container="c",namespace="ns",pod="p",pod_uid="uid",probe_type="Readiness",result="successful"} 1
`
		if err := testutil.CollectAndCompare(b.metrics.total, strings.NewReader(total)); err != nil {
			t.Error(err)
		}
		if n := testutil.CollectAndCount(b.metrics.duration, "prober_probe_duration_seconds"); n != 1 {
			t.Errorf("%d series of durations", n)
		}
		b.Remove("uid")
		for _, each := range b.ProbeMetrics() {
			if n := testutil.CollectAndCount(each); n != 0 {
				t.Errorf("%d series remain", n)
			}
		}
	})
}
