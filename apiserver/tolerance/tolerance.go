// Package tolerance accepts requests that the specification allows and the
// library's handlers refuse.
package tolerance

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"
)

// Filter changes requests on their way to the handlers. It needs the request
// info; what it does not understand it leaves to the handlers to refuse.
//
//   - The query parameter dryRun without a value is the same as none (document
//     1, section 4, Dry-run, rule 1).
//   - The body of an apply needs only apiVersion and kind; the path names the
//     object (document 2, section 4).
//
// maxBody is the most bytes of a body that the handlers read.
func Filter(next http.Handler, maxBody int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if query := req.URL.RawQuery; query != "" {
			req.URL.RawQuery = withoutEmptyDryRun(query)
		}
		if isApply(req) {
			req.Body = &namedBody{source: req.Body, req: req, limit: maxBody}
		}
		next.ServeHTTP(w, req)
	})
}

func withoutEmptyDryRun(raw string) string {
	query, err := url.ParseQuery(raw)
	if values, given := query["dryRun"]; err != nil || !given || len(values) != 1 || values[0] != "" {
		return raw
	}
	query.Del("dryRun")
	return query.Encode()
}

func isApply(req *http.Request) bool {
	if req.Method != http.MethodPatch {
		return false
	}
	mediaType, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	return err == nil && mediaType == string(types.ApplyPatchType)
}

// namedBody is the body of an apply, with the name of the path if it has none.
// It is read when the handler reads it: after authorization.
type namedBody struct {
	source io.ReadCloser
	req    *http.Request
	limit  int64
	read   io.Reader
}

// Read implements io.Reader.
func (b *namedBody) Read(p []byte) (int, error) {
	if b.read == nil {
		body, err := io.ReadAll(io.LimitReader(b.source, b.limit+1))
		if err != nil {
			return 0, err
		}
		b.read = bytes.NewReader(body)
		if int64(len(body)) <= b.limit {
			b.read = bytes.NewReader(b.named(body))
		}
	}
	return b.read.Read(p)
}

// Close implements io.Closer.
func (b *namedBody) Close() error { return b.source.Close() }

func (b *namedBody) named(body []byte) []byte {
	info, ok := request.RequestInfoFrom(b.req.Context())
	if !ok || !info.IsResourceRequest || info.Name == "" {
		return body
	}
	var given struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	if err := yaml.Unmarshal(body, &given); err != nil || given.Metadata.Name != "" {
		return body
	}
	var object map[string]any
	if err := yaml.Unmarshal(body, &object); err != nil || object == nil {
		return body
	}
	metadata, ok := object["metadata"].(map[string]any)
	if !ok {
		if object["metadata"] != nil {
			return body
		}
		metadata = map[string]any{}
		object["metadata"] = metadata
	}
	metadata["name"] = info.Name
	named, err := json.Marshal(object)
	if err != nil {
		return body
	}
	return named
}
