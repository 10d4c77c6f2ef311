package groupdomain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// translateRequest makes the body of a request be read in stored names. It is read and
// translated when the handler reads it: the client is authorized by then.
func (f *filter) translateRequest(req *http.Request, to route) {
	if req.ContentLength == 0 || req.Method == http.MethodGet || req.Method == http.MethodHead {
		return
	}
	contentType := req.Header.Get("Content-Type")
	req.Body = &lazyBody{from: req.Body, limit: f.MaxBody, translate: func(body []byte) ([]byte, error) {
		return f.requestBody(contentType, body, to)
	}}
	req.ContentLength = -1
	req.Header.Del("Content-Length")
}

// lazyBody is a body that is translated when it is first read. A body beyond the limit
// stays as it is: the handler refuses it.
type lazyBody struct {
	from      io.ReadCloser
	limit     int64 // in bytes
	translate func(body []byte) ([]byte, error)
	read      io.Reader // nil before the first Read
	err       error
}

// Read implements io.Reader.
func (b *lazyBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.read == nil {
		body, err := io.ReadAll(io.LimitReader(b.from, b.limit+1))
		if err == nil && int64(len(body)) <= b.limit {
			body, err = b.translate(body)
		}
		if b.err = err; err != nil {
			return 0, err
		}
		b.read = io.MultiReader(bytes.NewReader(body), b.from)
	}
	return b.read.Read(p)
}

// Close implements io.Closer.
func (b *lazyBody) Close() error { return b.from.Close() }

// requestBody returns the body of a request for objects in stored names. An error is
// one of a body that names the API of the host.
func (f *filter) requestBody(contentType string, body []byte, to route) ([]byte, error) {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil && contentType != "" {
		return body, nil
	}
	stored := f.Names.toStorage()
	switch mediaType {
	case string(types.JSONPatchType):
		return patchOperations(f.toStored(to, schema.GroupVersionKind{}), body), nil
	case runtime.ContentTypeProtobuf:
		return f.protobufRequest(body, to)
	}
	// kubectl sends JSON as an apply, which is YAML.
	isJSON := bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{"))
	read := yaml.Unmarshal
	if isJSON {
		read = func(body []byte, to any, _ ...yaml.JSONOpt) error { return json.Unmarshal(body, to) }
	}
	var meta runtime.TypeMeta
	if read(body, &meta) != nil {
		return body, nil
	}
	if err := f.checkVersion(meta, to); err != nil {
		return nil, err
	}
	root := f.toStored(to, schema.FromAPIVersionAndKind(stored.objectVersion(meta.APIVersion, meta.Kind), meta.Kind))
	if isJSON {
		return root.json(body, meta.Kind), nil
	}
	if translated, err := root.yaml(body); err == nil {
		return translated, nil
	}
	return body, nil
}

// protobufRequest is requestBody for protobuf.
func (f *filter) protobufRequest(body []byte, to route) ([]byte, error) {
	var object runtime.Unknown
	envelope, ok := bytes.CutPrefix(body, magic)
	if !ok || object.Unmarshal(envelope) != nil {
		return body, nil // the handler says what is wrong
	}
	if err := f.checkVersion(object.TypeMeta, to); err != nil {
		return nil, err
	}
	version := f.Names.toStorage().objectVersion(object.APIVersion, object.Kind)
	root := f.toStored(to, schema.FromAPIVersionAndKind(version, object.Kind))
	p := &protobuf{scheme: f.Scheme, root: root, stored: func(string) string { return version }}
	if translated, err := p.object(body); err == nil {
		return translated, nil
	}
	return body, nil
}

// checkVersion returns an error if a body names an API of the host: the error of the
// handler would say the stored version.
func (f *filter) checkVersion(meta runtime.TypeMeta, to route) error {
	stored := f.Names.toStorage().objectVersion(meta.APIVersion, meta.Kind)
	if stored == meta.APIVersion || !strings.Contains(stored, host) {
		return nil
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)",
		meta.APIVersion, f.Names.toWire().apiVersion(to.gv.String())))
}

// json returns the translation of a document whose kind is known.
func (n *node) json(body []byte, kind string) []byte {
	var out bytes.Buffer
	b := &jsonBody{to: &out, root: n, kind: kind}
	if _, err := b.Write(body); err != nil {
		return body
	}
	return out.Bytes()
}

// patchOperations translates the values of a JSON patch (RFC 6902).
func patchOperations(root *node, body []byte) []byte {
	var operations []map[string]json.RawMessage
	if json.Unmarshal(body, &operations) != nil {
		return body
	}
	for _, operation := range operations {
		var path string
		value, ok := operation["value"]
		if !ok || json.Unmarshal(operation["path"], &path) != nil {
			continue
		}
		operation["value"] = root.pointer(path).json(value, "")
	}
	translated, err := json.Marshal(operations)
	if err != nil {
		return body
	}
	return translated
}

// pointer returns the node at a JSON pointer (RFC 6901), or nil.
func (n *node) pointer(pointer string) *node {
	for segment := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		switch {
		case n == nil || pointer == "":
			return n
		case n.elements != nil && (segment == "-" || slices.IndexFunc([]byte(segment), func(c byte) bool { return c < '0' || c > '9' }) < 0):
			n = n.elements
		default:
			n = n.members[strings.NewReplacer("~1", "/", "~0", "~").Replace(segment)]
		}
	}
	return n
}
