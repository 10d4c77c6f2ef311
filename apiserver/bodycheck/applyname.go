package bodycheck

import (
	"encoding/json"
	"net/http"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// selectApplyName selects the bodies of apply patches. Such a body needs only
// apiVersion and kind, as the path names the object (document 2, section 4):
// the name of the path is added if the body has none.
func selectApplyName(req *http.Request) Func {
	if !isApply(req) {
		return nil
	}
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok || !info.IsResourceRequest || info.Name == "" {
		return nil
	}
	return func(body []byte) ([]byte, error) { return withName(body, info.Name), nil }
}

func isApply(req *http.Request) bool {
	return req.Method == http.MethodPatch && types.PatchType(mediaType(req)) == types.ApplyYAMLPatchType
}

// withName returns the body with the name added, if it has none. Everything
// else stays as it was written, so that the handler finds the errors in it, such
// as a duplicate field.
func withName(body []byte, name string) []byte {
	// Clients that send JSON send a name, and a JSON decoder is much faster.
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
	value := member(metadata, "name")
	if !isNull(value) && (value.Kind != yaml.ScalarNode || value.Value != "") {
		return body
	}
	value.SetString(name)
	named, err := yaml.Marshal(&document)
	if err != nil {
		return body
	}
	return named
}

// member returns the value of a key of a mapping, the last one if the key is
// duplicate, as decoders do. A missing key is added with the value null.
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
