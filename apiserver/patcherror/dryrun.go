package patcherror

import (
	"bytes"
	"context"
	"errors"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/klog/v2"
)

type readKey struct{}

// lastRead is the object that the store has read last for a request.
type lastRead struct{ object runtime.Object }

// Read keeps an object that the store has read, for the explanation of a dry run's
// error.
func Read(ctx context.Context, object runtime.Object) {
	if last, ok := ctx.Value(readKey{}).(*lastRead); ok {
		last.object = object
	}
}

// DryRunFilter explains the errors of the dry runs of patches of custom resources, as
// Explain does. The library applies the patches of dry runs outside the store, where
// nothing but the response has the error.
func DryRunFilter(handler http.Handler, s runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodPatch || !req.URL.Query().Has("dryRun") {
			handler.ServeHTTP(w, req)
			return
		}
		last := &lastRead{}
		ctx := context.WithValue(req.Context(), readKey{}, last)
		held := &heldError{ResponseWriter: w}
		handler.ServeHTTP(responsewriter.WrapForHTTP1Or2(held), req.WithContext(ctx))
		if held.status == 0 {
			return
		}
		if err := held.error(s); err != nil && last.object != nil {
			if explained := Explain(ctx, err, last.object); !errors.Is(explained, err) {
				w.Header().Del("Content-Length")
				responsewriters.ErrorNegotiated(explained, s, schema.GroupVersion{}, w, req)
				return
			}
		}
		w.WriteHeader(held.status)
		// An error means that the connection is broken, which the server notices itself.
		_, _ = w.Write(held.body.Bytes())
	})
}

// heldError is a response writer that holds back the errors that Explain may explain.
type heldError struct {
	http.ResponseWriter
	status int // 0 if the response is not held back
	body   bytes.Buffer
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (h *heldError) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (h *heldError) WriteHeader(status int) {
	if status == http.StatusInternalServerError || status == http.StatusUnprocessableEntity {
		h.status = status
		return
	}
	h.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (h *heldError) Write(p []byte) (int, error) {
	if h.status != 0 {
		return h.body.Write(p)
	}
	return h.ResponseWriter.Write(p)
}

// error returns the error that the library has written: one without a reason was not an
// API status. It returns nil if the response is not a Status.
func (h *heldError) error(s runtime.NegotiatedSerializer) error {
	mediaType, _, err := mime.ParseMediaType(h.Header().Get("Content-Type"))
	if err != nil {
		return nil
	}
	info, ok := runtime.SerializerInfoForMediaType(s.SupportedMediaTypes(), mediaType)
	if !ok {
		return nil
	}
	var status metav1.Status
	if _, _, err := info.Serializer.Decode(h.body.Bytes(), nil, &status); err != nil {
		return nil
	}
	if status.Code == http.StatusInternalServerError && status.Reason == metav1.StatusReasonUnknown {
		if quoted, ok := strings.CutPrefix(status.Message, notNumber); ok {
			if number, err := strconv.QuotedPrefix(quoted); err == nil {
				_, err = strconv.ParseUint(number[1:len(number)-1], 10, 64)
				return err
			}
		}
		return errors.New(status.Message)
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// These begin the library's message about an error that is not an API status, and the
// error of a resourceVersion that is not a number.
const (
	notStatus = "apiserver received an error that is not an metav1.Status"
	notNumber = "strconv.ParseUint: parsing "
)

// ErrorHandler returns a handler of the errors that libraries cannot return, which
// logs those of a client's patch as information, and passes the others to next. Such
// an error reaches the log before DryRunFilter explains it.
func ErrorHandler(next ...utilruntime.ErrorHandler) utilruntime.ErrorHandler {
	return func(ctx context.Context, err error, msg string, keysAndValues ...any) {
		logger := klog.FromContext(ctx)
		if err != nil && isLoggedClientError(err.Error()) {
			logger.V(4).Info("Client sent an invalid patch", append([]any{"remark", msg, "err", err}, keysAndValues...)...)
			return
		}
		ctx = klog.NewContext(ctx, logger.WithCallDepth(1))
		for _, handler := range next {
			handler(ctx, err, msg, keysAndValues...)
		}
	}
}

// isLoggedClientError reports whether the library says that it has received a
// client's error.
func isLoggedClientError(text string) bool {
	return strings.HasPrefix(text, notStatus) && slices.ContainsFunc([]string{": " + untypedPatch, undecodableValue, ": " + unknownDirective, ": " + notNumber},
		func(part string) bool { return strings.Contains(text, part) })
}
