package groupdomain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// translateRequest translates the body of a request. A body that cannot be read stays as
// it is: the handler says what is wrong with it.
func (f *filter) translateRequest(w http.ResponseWriter, req *http.Request, to route) error {
	if req.Body == nil || req.Body == http.NoBody || req.Method == http.MethodGet || req.Method == http.MethodHead {
		return nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, f.MaxBody))
	if err != nil {
		return err
	}
	translated, err := f.requestBody(req.Header.Get("Content-Type"), body, to)
	if err != nil {
		return err
	}
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(translated)), int64(len(translated))
	req.Header.Set("Content-Length", strconv.Itoa(len(translated)))
	return nil
}

// requestBody returns the body of a request for objects in stored names. An error is
// one of a body that names the API of the host.
func (f *filter) requestBody(contentType string, body []byte, to route) ([]byte, error) {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil && contentType != "" {
		return body, nil
	}
	stored := direction(f.Names.Stored)
	switch mediaType {
	case string(types.JSONPatchType):
		return patchOperations(f.toStored(to, schema.GroupVersionKind{}), body), nil
	case runtime.ContentTypeProtobuf:
		root := f.toStored(to, schema.GroupVersionKind{})
		p := protobuf{scheme: f.Scheme, root: root, stored: stored.apiVersion}
		if translated, err := p.object(body); err == nil {
			return translated, nil
		}
		return body, nil
	}
	var meta runtime.TypeMeta
	if yaml.Unmarshal(body, &meta) != nil {
		return body, nil
	}
	if err := f.checkVersion(meta, to); err != nil {
		return nil, err
	}
	root := f.toStored(to, schema.FromAPIVersionAndKind(stored.objectVersion(meta.APIVersion, meta.Kind), meta.Kind))
	if mediaType == string(types.ApplyYAMLPatchType) || mediaType == runtime.ContentTypeYAML {
		if json.Valid(body) { // what kubectl sends
			return root.json(body, meta.Kind), nil
		}
		if translated, err := root.yaml(body); err == nil {
			return translated, nil
		}
		return body, nil
	}
	return root.json(body, meta.Kind), nil
}

// checkVersion returns an error if a body names an API of the host: the error of the
// handler would say the stored version.
func (f *filter) checkVersion(meta runtime.TypeMeta, to route) error {
	stored := direction(f.Names.Stored).objectVersion(meta.APIVersion, meta.Kind)
	if stored == meta.APIVersion || !strings.Contains(stored, host) {
		return nil
	}
	return fmt.Errorf("the API version in the data (%s) does not match the expected API version (%s)",
		meta.APIVersion, direction(f.Names.Public).apiVersion(to.gv.String()))
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
