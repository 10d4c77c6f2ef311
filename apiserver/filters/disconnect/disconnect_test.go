package disconnect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/handlers/finisher"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/klog/v2"
)

// errorLog is what ErrorHandler passes to the next handler.
type errorLog struct {
	mu    sync.Mutex
	lines []string
}

var all errorLog

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{ErrorHandler(func(_ context.Context, err error, msg string, _ ...any) {
		all.mu.Lock()
		defer all.mu.Unlock()
		all.lines = append(all.lines, fmt.Sprint(msg, " ", err))
	})}
	m.Run()
}

// record returns a function that returns the errors since the call of record.
func record() (since func() []string) {
	before := len(all.copied())
	return func() []string { return all.copied()[before:] }
}

func (l *errorLog) copied() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// serve makes a request to a handler behind the library's filters, as the server
// has them. If leave is set, the client disconnects when the handler runs. It
// returns when the handler has returned.
func serve(t *testing.T, timeout time.Duration, leave bool) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	codecs := serializer.NewCodecFactory(scheme)
	ctx, gone := context.WithCancel(t.Context())
	defer gone()
	answered := make(chan struct{})
	var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer close(answered)
		if leave {
			gone()
		}
		_, err := finisher.FinishRequest(req.Context(), func() (runtime.Object, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		})
		if !apierrors.IsTimeout(err) {
			t.Errorf("the library's answer is %v", err)
		}
		// The filter aborts the response at about the same time as the request.
		for err = nil; err == nil; {
			_, err = w.Write([]byte(" "))
		}
		responsewriters.ErrorNegotiated(req.Context().Err(), codecs, corev1.SchemeGroupVersion, w, req)
		responsewriters.WriteObjectNegotiated(codecs, negotiation.DefaultEndpointRestrictions, corev1.SchemeGroupVersion, w, req, http.StatusOK, &corev1.Pod{}, false)
	})
	resolver := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	handler = filters.WithTimeoutForNonLongRunningRequests(handler, func(*http.Request, *request.RequestInfo) bool { return false })
	limited := func(w http.ResponseWriter, req *http.Request) {
		info, err := resolver.NewRequestInfo(req)
		if err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(request.WithRequestInfo(req.Context(), info), timeout)
		defer cancel()
		handler.ServeHTTP(w, req.WithContext(ctx))
	}
	server := httptest.NewServer(Filter(filters.WithPanicRecovery(http.HandlerFunc(limited), resolver)))
	defer server.Close()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/api/v1/namespaces/ns/pods", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if leave && !errors.Is(err, context.Canceled) {
		t.Errorf("the client got %v", err)
	}
	<-answered
}

func TestADisconnectedClientIsNotAnError(t *testing.T) {
	left := record()
	serve(t, time.Hour, true)
	if errs := left(); len(errs) > 0 {
		t.Errorf("logged %q", errs)
	}
}

func TestATimeoutOfTheServerIsAnError(t *testing.T) {
	left := record()
	serve(t, time.Millisecond, false)
	deadline, tick := time.After(time.Minute), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !slices.Contains(left(), "Post-timeout activity <nil>") {
		select {
		case <-deadline:
			t.Fatalf("logged %q", left())
		case <-tick.C:
		}
	}
}

func TestOtherErrorsArePassedOn(t *testing.T) {
	left := record()
	ended, end := context.WithCancel(t.Context())
	end()
	utilruntime.HandleError(errors.New("broken"))
	utilruntime.HandleError(errors.New("FinishRequest: post-timeout activity - time-elapsed: 1s, panicked: true, err: <nil>, panic-reason: broken"))
	utilruntime.HandleError(fmt.Errorf("a controller was unable to sync: %w", context.Canceled))
	utilruntime.HandleErrorWithContext(ended, nil, "A loop was broken off")
	if errs := left(); len(errs) != 4 {
		t.Errorf("logged %q", errs)
	}
}

func TestErrorsOfStreams(t *testing.T) {
	const client, agent = "192.0.2.1:40000", "192.0.2.2:10250"
	of := func(op, address string) error {
		remote, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Errorf("copy: %w", &net.OpError{Op: op, Net: "tcp", Addr: remote, Err: errors.New("connection reset by peer")})
	}
	const fromClient, fromBackend = "Error proxying data from client to backend", "Error proxying data from backend to client"
	for _, test := range []struct {
		rule, msg string
		err       error
		isError   bool
	}{
		{"a client that resets its connection", fromClient, of("read", client), false},
		{"a client to which nothing can be written", fromBackend, of("write", client), false},
		{"a client that closes its connection without a close message", fromClient, io.ErrUnexpectedEOF, false},
		{"a client's websocket that breaks off", fromClient, &websocket.CloseError{Code: websocket.CloseAbnormalClosure}, false},
		{"a client that has sent a close message", fromBackend, fmt.Errorf("write: %w", websocket.ErrCloseSent), false},
		{"a connection that the server has closed", "Copying stdout failed", &net.OpError{Op: "write", Err: net.ErrClosed}, false},
		{"an agent that resets its connection", fromBackend, of("read", agent), true},
		{"an agent to which nothing can be written", fromClient, of("write", agent), true},
		{"an agent that closes its connection without a close message", fromBackend, io.ErrUnexpectedEOF, true},
		{"anything else", "Failed", errors.New("broken"), true},
		{"no error at all", "Failed", nil, true},
	} {
		t.Run(test.rule, func(t *testing.T) {
			told := 0
			logger := funcr.New(func(string, string) { told++ }, funcr.Options{Verbosity: verbosity - 1})
			handler := Filter(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				klog.FromContext(req.Context()).WithName("proxy").WithValues("a", "b").Error(test.err, test.msg)
			}))
			req := httptest.NewRequestWithContext(klog.NewContext(t.Context(), logger), http.MethodGet, "/", nil)
			req.RemoteAddr = client
			req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
			handler.ServeHTTP(httptest.NewRecorder(), req)
			if isError := told > 0; isError != test.isError {
				t.Errorf("logged as an error: %t, want %t", isError, test.isError)
			}
		})
	}
}
