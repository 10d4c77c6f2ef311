package bodycheck

import (
	"bytes"
	"encoding/json"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"
)

// selectOwnershipReset selects updates and patches, whose value of
// metadata.managedFields is completed to what the field manager understands as
// the specification says (document 2, section 2, rules 2 and 3):
//
//   - An empty list resets nothing. The field manager resets with it; it gets
//     null instead, which leaves the managers as they are.
//   - A list with one empty entry resets, and the client owns what the same
//     request changes. The field manager stops to track changes when no manager
//     is left; it gets a manager without fields instead, which it drops after it
//     has recorded the changes.
//
// Bodies in protobuf and CBOR are left to the field manager: protobuf has no
// empty list.
func selectOwnershipReset(req *http.Request) Func {
	if req.Method != http.MethodPut && req.Method != http.MethodPatch {
		return nil
	}
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok || !info.IsResourceRequest || info.Subresource != "" {
		return nil
	}
	reset := ownershipReset{schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}}
	var rewrite func([]byte) ([]byte, bool)
	switch types.PatchType(mediaType(req)) {
	case types.PatchType(runtime.ContentTypeJSON), types.MergePatchType, types.StrategicMergePatchType:
		rewrite = reset.inJSON
	case types.JSONPatchType:
		rewrite = reset.inJSONPatch
	case types.PatchType(runtime.ContentTypeYAML):
		rewrite = func(body []byte) ([]byte, bool) { return reset.inYAML(req, body) }
	default:
		return nil
	}
	return func(body []byte) ([]byte, error) {
		if !bytes.Contains(body, []byte("managedFields")) {
			return body, nil
		}
		if rewritten, ok := rewrite(body); ok {
			return rewritten, nil
		}
		return body, nil // what is wrong with it, the handler says
	}
}

// ownershipReset rewrites resets of the objects of a version.
type ownershipReset struct{ version schema.GroupVersion }

// value returns what replaces a value of metadata.managedFields, as JSON. It
// reports whether anything does.
func (r ownershipReset) value(given []byte) ([]byte, bool) {
	var list []metav1.ManagedFieldsEntry
	if json.Unmarshal(given, &list) != nil || list == nil || len(list) > 1 {
		return nil, false
	}
	if len(list) == 0 {
		return []byte("null"), true
	}
	if list[0] != (metav1.ManagedFieldsEntry{}) {
		return nil, false
	}
	noFields, err := json.Marshal([]metav1.ManagedFieldsEntry{{
		Manager: "reset", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: r.version.String(),
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{}"),
	}})
	return noFields, err == nil
}

// inJSON replaces the value within an object or a merge patch. All other bytes
// stay as they are, so that the handler finds duplicate fields.
func (r ownershipReset) inJSON(body []byte) ([]byte, bool) {
	return r.within(body, "metadata", "managedFields")
}

// within replaces the value at a path of keys in a JSON object.
func (r ownershipReset) within(object []byte, path ...string) ([]byte, bool) {
	start, end, ok := valueAt(object, path...)
	if !ok {
		return nil, false
	}
	value, ok := r.value(object[start:end])
	return bytes.Join([][]byte{object[:start], value, object[end:]}, nil), ok
}

// valueAt returns where in a JSON object the value at a path of keys is.
func valueAt(body []byte, path ...string) (start, end int64, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	for {
		if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
			return 0, 0, false
		}
		if !skipTo(decoder, path[0]) {
			return 0, 0, false
		}
		if path = path[1:]; len(path) == 0 {
			break
		}
	}
	var value json.RawMessage
	if decoder.Decode(&value) != nil {
		return 0, 0, false
	}
	end = decoder.InputOffset()
	return end - int64(len(value)), end, true
}

// skipTo reads up to the value of the key in the object that the decoder is in, and reports
// whether the object has the key.
func skipTo(decoder *json.Decoder, key string) bool {
	for decoder.More() {
		found, err := decoder.Token()
		if err != nil {
			return false
		}
		if found == key {
			return true
		}
		var skipped json.RawMessage
		if decoder.Decode(&skipped) != nil {
			return false
		}
	}
	return false
}

// inJSONPatch replaces the value of operations that set metadata.managedFields, the whole
// metadata, or the whole object.
func (r ownershipReset) inJSONPatch(body []byte) ([]byte, bool) {
	var operations []map[string]json.RawMessage
	if json.Unmarshal(body, &operations) != nil {
		return nil, false
	}
	changed := false
	for _, operation := range operations {
		var kind, path string
		if json.Unmarshal(operation["op"], &kind) != nil || json.Unmarshal(operation["path"], &path) != nil || kind != "add" && kind != "replace" {
			continue
		}
		value, ok := []byte(nil), false
		switch path {
		case "/metadata/managedFields":
			value, ok = r.value(operation["value"])
		case "/metadata":
			value, ok = r.within(operation["value"], "managedFields")
		case "":
			value, ok = r.within(operation["value"], "metadata", "managedFields")
		}
		if ok {
			operation["value"], changed = value, true
		}
	}
	if !changed {
		return nil, false
	}
	rewritten, err := json.Marshal(operations)
	return rewritten, err == nil
}

// inYAML is inJSON for YAML, of which JSON is a part. JSON has no duplicate fields any
// more: a request that is to be refused because of them is left to the handler, which names
// them.
func (r ownershipReset) inYAML(req *http.Request, body []byte) ([]byte, bool) {
	converted, err := yaml.YAMLToJSON(body)
	if err != nil {
		return nil, false
	}
	rewritten, ok := r.inJSON(converted)
	if !ok {
		return nil, false
	}
	return rewritten, treatUnknown(req, duplicates(body)) == nil
}
