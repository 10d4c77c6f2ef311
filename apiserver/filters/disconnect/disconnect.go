// Package disconnect owns the log messages about clients that disconnect during a
// request. That is no error of the server, and operators need not act on it, so
// the libraries' errors about it are logged as information, at verbosity 4.
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

// verbosity is that of messages about clients that have disconnected.
const verbosity = 4

// note is the message about them. The library's message is its value "remark".
const note = "Client disconnected during its request"

// ErrorHandler returns a handler of the errors that libraries cannot return. It must
// be the only one of [utilruntime.ErrorHandlers]. It logs errors about clients that
// have disconnected, and passes all others to the handlers of next.
func ErrorHandler(next ...utilruntime.ErrorHandler) utilruntime.ErrorHandler {
	return func(ctx context.Context, err error, msg string, keysAndValues ...any) {
		logger := klog.FromContext(ctx)
		if disconnected(ctx) || isAfterDisconnect(err) {
			logger.V(verbosity).Info(note, append([]any{"remark", msg, "err", err}, keysAndValues...)...)
			return
		}
		ctx = klog.NewContext(ctx, logger.WithCallDepth(1))
		for _, handler := range next {
			handler(ctx, err, msg, keysAndValues...)
		}
	}
}

// disconnected reports whether the context is that of a request whose client has disconnected.
// When the server takes too long, its deadline is exceeded instead.
func disconnected(ctx context.Context) bool {
	return ctx.Value(http.ServerContextKey) != nil && errors.Is(ctx.Err(), context.Canceled)
}

// isAfterDisconnect reports whether an error, which comes without the context of
// its request, only says that the response could not be written. If the cause is a
// timeout of the server, the library's timeout filter logs an error with the context.
func isAfterDisconnect(err error) bool {
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

// Filter treats the errors of upgraded requests in the same way: the libraries log
// those of their connections by the logger of the request's context.
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

// sink is the log sink of one request.
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

// lost reports whether an error is that of the client's connection: the client has
// reset or closed it, or the server has closed it after that.
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
