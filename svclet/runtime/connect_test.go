package runtime_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/runtime/runtimetest"
)

// serve serves gRPC without CRI v1, and with what register adds.
func serve(t *testing.T, register func(*grpc.Server)) string {
	t.Helper()
	path := socket(t)
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // before it began
			t.Error(err)
		}
	})
	return "unix://" + path
}

// alpha answers the version request of CRI v1alpha2.
var alpha = grpc.ServiceDesc{
	ServiceName: "runtime.v1alpha2.RuntimeService",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Version",
		Handler: func(any, context.Context, func(any) error, grpc.UnaryServerInterceptor) (any, error) {
			return &runtimeapi.VersionResponse{RuntimeName: "old"}, nil
		},
	}},
}

func TestConnectErrorsAreOneLineThatSaysWhatIsWrong(t *testing.T) {
	tests := []struct {
		name     string
		endpoint func(*testing.T) string
		want     string
		timeout  time.Duration
	}{
		{"no endpoint", func(*testing.T) string { return "" }, "no container runtime endpoint", 0},
		{"no unix socket", func(*testing.T) string { return "tcp://127.0.0.1:1" }, "want unix:///", 0},
		{"no such socket", func(t *testing.T) string { return "unix://" + socket(t) }, "there is no such socket", 0},
		{"no socket", func(t *testing.T) string {
			path := socket(t)
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return "unix://" + path
		}, "it is not a socket", 0},
		{"no process listens", func(t *testing.T) string {
			path := socket(t)
			listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			listener.SetUnlinkOnClose(false)
			if err := listener.Close(); err != nil {
				t.Fatal(err)
			}
			return "unix://" + path
		}, "is the runtime running?", 0},
		{"no CRI", func(t *testing.T) string { return serve(t, func(*grpc.Server) {}) }, "enable its CRI plugin", 0},
		{"too old", func(t *testing.T) string {
			return serve(t, func(server *grpc.Server) { server.RegisterService(&alpha, struct{}{}) })
		}, "is too old", 0},
		{"no answer", func(t *testing.T) string {
			r, err := runtimetest.Start(runtimetest.Options{Socket: socket(t)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(r.Close)
			r.Rule("Version", runtimetest.Rule{Hang: true})
			return r.Endpoint()
		}, "has not answered within 100ms", 100 * time.Millisecond},
		{"no image service", func(t *testing.T) string {
			r, err := runtimetest.Start(runtimetest.Options{Socket: socket(t)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(r.Close)
			r.Rule("ImageFsInfo", runtimetest.Rule{Err: status.Error(codes.Internal, "broken disk")})
			return r.Endpoint()
		}, "broken disk", 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := runtime.Connect(t.Context(), runtime.Options{RuntimeEndpoint: test.endpoint(t), RequestTimeout: test.timeout})
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Connect: %v; want one line with %q", err, test.want)
			}
		})
	}
}

func TestRequestsHaveATimeout(t *testing.T) {
	t.Parallel() // it lasts until a request times out
	w := start(t, runtimetest.Options{}, runtime.Options{RequestTimeout: 3 * time.Second})
	w.Rule("StopPodSandbox", runtimetest.Rule{Hang: true})
	if err := w.client.StopSandbox(t.Context(), "x"); !runtime.IsTimeout(err) {
		t.Errorf("StopSandbox: %v", err)
	}
	if health := w.client.Health(); health.Err == nil || health.LastContact.IsZero() {
		t.Errorf("after a request without an answer the health is %+v", health)
	}
}

func TestStopAndRemoveSucceedForObjectsThatDoNotExist(t *testing.T) {
	w := start(t, runtimetest.Options{}, runtime.Options{})
	missing := runtimetest.Rule{Err: status.Error(codes.NotFound, "not found")}
	for _, method := range []string{"StopPodSandbox", "RemovePodSandbox", "StopContainer", "RemoveContainer", "RemoveImage"} {
		w.Rule(method, missing)
	}
	ctx := t.Context()
	err := errors.Join(w.client.StopSandbox(ctx, "x"), w.client.RemoveSandbox(ctx, "x"), w.client.StopContainer(ctx, "x", 0),
		w.client.RemoveContainer(ctx, "x"), w.client.RemoveImage(ctx, &runtimeapi.ImageSpec{Image: "x"}))
	if err != nil {
		t.Error(err)
	}
	if err := w.client.StartContainer(ctx, "x"); !runtime.IsNotFound(err) {
		t.Errorf("StartContainer: %v", err)
	}
}

func TestErrorsNameTheOperationAndTheObject(t *testing.T) {
	w := start(t, runtimetest.Options{}, runtime.Options{})
	w.sandbox("a", 0)
	w.Rule("CreateContainer", runtimetest.Rule{Err: status.Error(codes.Unknown, "no space left")})
	_, err := w.client.CreateContainer(t.Context(), "box", &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "app"},
	}, sandboxConfig(podOf("a"), 0))
	want := "create container app of pod default/pod-a in sandbox box: rpc error: code = Unknown desc = no space left"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if message := runtime.Message(err); message != "no space left" {
		t.Errorf("the runtime's message is %q", message)
	}
}

func TestANonZeroExitCodeIsNotAnError(t *testing.T) {
	var ran []string
	var bound int64
	w := start(t, runtimetest.Options{
		Exec: func(_ *runtimeapi.ContainerConfig, command []string) runtimetest.ExecResult {
			ran = command
			return runtimetest.ExecResult{Stdout: []byte("out"), Stderr: []byte("err"), Code: 3}
		},
	}, runtime.Options{})
	w.sandbox("a", 0)
	id := w.run("a", "app", 0)
	w.Rule("ExecSync", runtimetest.Rule{Match: func(request proto.Message) bool {
		bound = request.(*runtimeapi.ExecSyncRequest).Timeout
		return true
	}})
	stdout, stderr, code, err := w.client.ExecSync(t.Context(), id, []string{"test", "-f"}, 1500*time.Millisecond)
	if err != nil || string(stdout) != "out" || string(stderr) != "err" || code != 3 || len(ran) != 2 {
		t.Errorf("ExecSync: %q %q %d %v", stdout, stderr, code, err)
	}
	if bound != 2 {
		t.Errorf("1.5s are given as %d seconds", bound)
	}
}

func TestACommandThatTakesTooLongIsATimeout(t *testing.T) {
	w := start(t, runtimetest.Options{
		Exec: func(*runtimeapi.ContainerConfig, []string) runtimetest.ExecResult {
			return runtimetest.ExecResult{Err: status.Error(codes.DeadlineExceeded, "timeout 1s exceeded")}
		},
	}, runtime.Options{})
	w.sandbox("a", 0)
	id := w.run("a", "app", 0)
	if _, _, _, err := w.client.ExecSync(t.Context(), id, []string{"sleep", "9"}, time.Second); !runtime.IsTimeout(err) {
		t.Errorf("ExecSync: %v", err)
	}
}

func TestTheClientReconnects(t *testing.T) {
	w := start(t, runtimetest.Options{}, runtime.Options{})
	w.Down()
	if _, err := w.client.Status(t.Context()); !runtime.IsUnavailable(err) {
		t.Errorf("Status without a runtime: %v", err)
	}
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the runtime answers again", func() bool {
		_, err := w.client.Status(t.Context())
		return err == nil
	})
	if health := w.client.Health(); health.Err != nil {
		t.Errorf("health %+v", health)
	}
}

func TestStatusReturnsConditionsHandlersAndFeatures(t *testing.T) {
	w := start(t, runtimetest.Options{}, runtime.Options{})
	w.SetCondition(&runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Reason: "NetworkPluginNotReady"})
	got, err := w.client.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !got.Condition(runtimeapi.RuntimeReady).Status || got.Condition(runtimeapi.NetworkReady).Status ||
		got.Condition("Other").Status || got.Handler("") == nil || got.Handler("kata") != nil || !got.Features.SupplementalGroupsPolicy {
		t.Errorf("status %+v", got)
	}
}
