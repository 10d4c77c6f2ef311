// Package disconnect keeps clients that go away in the middle of a request out of
// the log of errors: they may do that whenever they like, and nobody has to do
// anything about it. What the libraries say of them is logged from verbosity 4 on.
package disconnect

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/go-logr/logr"
	"github.com/gorilla/websocket"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
)

// verbosity is that of what is told about clients that have gone.
const verbosity = 4

// note is what is told about them, with what the library would have.
const note = "A client has gone before the end of its request"

// ErrorHandler handles the errors that libraries cannot return, as the only one of
// [utilruntime.ErrorHandlers]: those of clients that have gone it notes, and all
// others it gives to those of next.
func ErrorHandler(next ...utilruntime.ErrorHandler) utilruntime.ErrorHandler {
	return func(ctx context.Context, err error, msg string, keysAndValues ...any) {
		logger := klog.FromContext(ctx)
		if hasGone(ctx) || isAftermath(err) {
			logger.V(verbosity).Info(note, append([]any{"remark", msg, "err", err}, keysAndValues...)...)
			return
		}
		ctx = klog.NewContext(ctx, logger.WithCallDepth(1))
		for _, handler := range next {
			handler(ctx, err, msg, keysAndValues...)
		}
	}
}

// hasGone reports whether the context is that of a request whose client has gone.
// When the server takes too long, its deadline is exceeded instead.
func hasGone(ctx context.Context) bool {
	return ctx.Value(http.ServerContextKey) != nil && errors.Is(ctx.Err(), context.Canceled)
}

// isAftermath reports whether an error only says that there is nobody left who
// takes an answer, and comes without the request's context. The library's filter
// of timeouts tells, with the context, when that is the server's own doing.
func isAftermath(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	switch {
	case strings.HasPrefix(text, "apiserver was unable to write"), strings.HasPrefix(text, "apiserver received an error that is not an metav1.Status"):
		return strings.HasSuffix(text, http.ErrHandlerTimeout.Error()) || strings.HasSuffix(text, context.Canceled.Error())
	case strings.HasPrefix(text, "FinishRequest: post-timeout activity"):
		return strings.Contains(text, "panicked: false")
	default:
		return false
	}
}

// Filter has what is said of a request that is upgraded to a stream looked at in
// the same way: the libraries log the errors of its connections themselves.
func Filter(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if httpstream.IsUpgradeRequest(req) {
			logger := klog.FromContext(req.Context()).WithCallDepth(1)
			if logs := logger.GetSink(); logs != nil {
				logger = logger.WithSink(&sink{logs, req.RemoteAddr})
				req = req.WithContext(klog.NewContext(req.Context(), logger))
			}
		}
		handler.ServeHTTP(w, req)
	})
}

// sink takes the log of one request.
type sink struct {
	logr.LogSink
	client string // its address
}

// Error implements logr.LogSink.
func (s *sink) Error(err error, msg string, keysAndValues ...any) {
	if !s.lost(err, msg) {
		s.LogSink.Error(err, msg, keysAndValues...)
		return
	}
	if s.LogSink.Enabled(verbosity) {
		s.LogSink.Info(verbosity, note, append([]any{"remark", msg, "err", err}, keysAndValues...)...)
	}
}

// lost reports whether an error is that of the client's connection: it has been
// reset or left, or closed by the server after that.
func (s *sink) lost(err error, msg string) bool {
	var failed *net.OpError
	var left *websocket.CloseError
	switch {
	case errors.Is(err, net.ErrClosed), errors.Is(err, websocket.ErrCloseSent), errors.As(err, &left):
		return true
	case errors.Is(err, io.ErrUnexpectedEOF):
		return strings.Contains(msg, "from client")
	default:
		return errors.As(err, &failed) && failed.Addr != nil && failed.Addr.String() == s.client
	}
}

// WithValues implements logr.LogSink.
func (s *sink) WithValues(keysAndValues ...any) logr.LogSink {
	return &sink{s.LogSink.WithValues(keysAndValues...), s.client}
}

// WithName implements logr.LogSink.
func (s *sink) WithName(name string) logr.LogSink { return &sink{s.LogSink.WithName(name), s.client} }

// WithCallDepth implements logr.CallDepthLogSink.
func (s *sink) WithCallDepth(depth int) logr.LogSink {
	if deep, ok := s.LogSink.(logr.CallDepthLogSink); ok {
		return &sink{deep.WithCallDepth(depth), s.client}
	}
	return s
}
