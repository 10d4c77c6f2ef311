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

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
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

// named is the body with the name added to what it says. All else stays as it
// was written, so that the handler finds what is wrong with it, such as a field
// that is given twice.
func (b *namedBody) named(body []byte) []byte {
	info, ok := request.RequestInfoFrom(b.req.Context())
	if !ok || !info.IsResourceRequest || info.Name == "" {
		return body
	}
	// What clients send as JSON has a name, and is read as YAML much slower.
	var given struct{ Metadata struct{ Name string } }
	if err := json.Unmarshal(body, &given); err == nil && given.Metadata.Name != "" {
		return body
	}
	var document yaml.Node
	if err := yaml.Unmarshal(body, &document); err != nil || len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return body
	}
	metadata := member(document.Content[0], "metadata")
	if isNull(metadata) {
		*metadata = yaml.Node{Kind: yaml.MappingNode}
	}
	if metadata.Kind != yaml.MappingNode {
		return body
	}
	name := member(metadata, "name")
	if !isNull(name) && (name.Kind != yaml.ScalarNode || name.Value != "") {
		return body
	}
	name.SetString(info.Name)
	named, err := yaml.Marshal(&document)
	if err != nil {
		return body
	}
	return named
}

// member is the value of a mapping's key, the last one as decoders have it. It
// is added, as null, where there is none.
func member(mapping *yaml.Node, key string) *yaml.Node {
	for i := len(mapping.Content) - 2; i >= 0; i -= 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	value := &yaml.Node{Kind: yaml.ScalarNode, Tag: nullTag}
	mapping.Content = append(mapping.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value)
	return value
}

const nullTag = "!!null"

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == nullTag }
