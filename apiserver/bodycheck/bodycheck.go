// Package bodycheck owns the checks of request bodies before a decoder reads them:
// it refuses bodies that would exhaust the decoders, completes fields that the
// specification lets clients omit, and rewrites values that the handlers interpret
// differently than the specification. Codecs has the check that only decoders can make.
package bodycheck

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/klog/v2"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/patcherror"
	"svc.dev/svc/apiserver/release/fields"
)

// A Check examines the bodies of some requests.
type Check struct {
	Name string
	// Select returns the function that checks the body of req, or nil if the
	// check does not concern req. It must not read the body.
	Select func(req *http.Request) Func
}

// Func checks a body. It returns the body for the next check and the handler,
// which is the given one unless the check changes it, or an error that says
// why the body is refused.
type Func func(body []byte) ([]byte, error)

// Checks returns the checks of the server, in their order. The scheme has the
// types of the kinds; lacking are the fields that the release does not have.
func Checks(kinds []*resource.Kind, scheme *runtime.Scheme, lacking *fields.Fields) []Check {
	known := schemes{scheme, apiextensions.Scheme, aggregatorscheme.Scheme}
	return []Check{
		{Name: "nesting", Select: selectNesting},
		{Name: "apply name", Select: selectApplyName},
		{Name: "former fields", Select: selectFormerFields(kinds, lacking)},
		{Name: "apply fields", Select: selectApplyFields(known, lacking)},
		{Name: "strategic values", Select: selectStrategicValues(kinds)},
		{Name: "release fields", Select: selectReleaseFields(kinds, lacking)},
		{Name: "ownership reset", Select: selectOwnershipReset},
		{Name: "patch error", Select: keepPatch(known)},
	}
}

// mediaType returns the media type of the body of req, without parameters, as the
// handlers read it: those of patches take what precedes the parameters as it is written.
// That of a body without one is the default of the handlers, JSON.
func mediaType(req *http.Request) string {
	if req.Method == http.MethodPatch {
		name, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";")
		return name
	}
	name, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil {
		return runtime.ContentTypeJSON
	}
	return name
}

// keepPatch keeps the body of a patch for the explanation of its failure.
func keepPatch(known schemes) func(req *http.Request) Func {
	return func(req *http.Request) Func {
		if req.Method != http.MethodPatch {
			return nil
		}
		kind := types.PatchType(mediaType(req))
		if !patcherror.Explains(kind) {
			return nil
		}
		return func(body []byte) ([]byte, error) {
			*req = *req.WithContext(patcherror.WithPatch(req.Context(), kind, body, known.versioned(req)))
			return body, nil
		}
	}
}

// Filter passes requests to handler when all checks accept their bodies, and
// answers 400 otherwise, also when a body cannot be read to its end. It needs the request
// info. A body is read once, and only if a check concerns it. Bodies of more than maxBytes pass unchecked: the
// handler refuses them without decoding. Those of requests that proxied reports are for
// the servers that they are proxied to, and pass unread; nil reports none.
func Filter(handler http.Handler, s runtime.NegotiatedSerializer, checks []Check, maxBytes int64, proxied func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Body != nil && req.Body != http.NoBody {
			req.Body = clientBody{req.Body}
		}
		if err := run(req, checks, maxBytes, proxied); err != nil {
			responsewriters.ErrorNegotiated(apierrors.NewBadRequest(err.Error()), s, schema.GroupVersion{}, w, req)
			return
		}
		handler.ServeHTTP(w, req)
	})
}

// run applies the checks to the body of req, unless it is proxied, and replaces the body
// by one that can be read again.
func run(req *http.Request, checks []Check, maxBytes int64, proxied func(*http.Request) bool) error {
	if req.Body == nil {
		return nil
	}
	var original, checked []byte
	for _, check := range checks {
		f := check.Select(req)
		if f == nil {
			continue
		}
		if original == nil {
			if proxied != nil && proxied(req) {
				return nil
			}
			var err error
			if original, err = read(req, maxBytes+1); err != nil {
				return err
			}
			checked = original
		}
		if int64(len(original)) > maxBytes {
			break
		}
		var err error
		if checked, err = f(checked); err != nil {
			klog.FromContext(req.Context()).V(4).Info("Refused request body", "check", check.Name, "path", req.URL.Path, "err", err)
			return err
		}
	}
	if original == nil {
		return nil
	}
	if grown := len(checked) - len(original); req.ContentLength >= 0 {
		req.ContentLength += int64(grown) // an extension server gets as much as is announced
	}
	req.Body = body{io.MultiReader(bytes.NewReader(checked), req.Body), req.Body}
	return nil
}

// maxPreallocated is the most memory, in bytes, that is allocated because a
// client announces a length, before the client has sent so much.
const maxPreallocated = 64 << 10

// read reads up to limit bytes of the body of req. The result is not nil.
func read(req *http.Request, limit int64) ([]byte, error) {
	var data bytes.Buffer
	data.Grow(int(max(0, min(req.ContentLength, maxPreallocated))) + bytes.MinRead)
	_, err := data.ReadFrom(io.LimitReader(req.Body, limit))
	return data.Bytes(), err
}

// body is a request's body of which the beginning was read already.
type body struct {
	io.Reader
	io.Closer
}

// clientBody is a body whose errors are those of the client, such as a chunk without a
// length, or an end before the announced length.
type clientBody struct{ io.ReadCloser }

// Read implements io.Reader.
func (b clientBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = apierrors.NewBadRequest(fmt.Sprintf("reading the body: %v", err))
	}
	return n, err
}
