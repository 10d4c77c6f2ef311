package groupdomain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	protobufserializer "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// writeNotFound writes the error of a path that is not served.
func writeNotFound(w http.ResponseWriter, message string) {
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: message,
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(http.StatusNotFound)
	_, _ = w.Write(body) // an error means that the client has gone
}

// status returns an error in the names of the domain. A body that is not a Status stays,
// as do all members that name nothing. paths are the stored path of the request and the
// one on the wire.
func (f *filter) status(contentType string, body []byte, paths [2]string) ([]byte, error) {
	switch {
	case strings.HasPrefix(contentType, runtime.ContentTypeJSON):
		return f.Names.jsonStatus(body, paths)
	case strings.HasPrefix(contentType, runtime.ContentTypeYAML):
		document, err := yaml.YAMLToJSON(body)
		if err != nil {
			return nil, err
		}
		translated, err := f.Names.jsonStatus(document, paths)
		if err != nil || bytes.Equal(translated, document) {
			return body, err
		}
		return yaml.JSONToYAML(translated)
	case strings.HasPrefix(contentType, runtime.ContentTypeProtobuf):
		return f.protobufStatus(body, paths)
	}
	return body, nil
}

// jsonStatus is status for JSON.
func (n *Names) jsonStatus(body []byte, paths [2]string) ([]byte, error) {
	var stored metav1.Status
	if err := utiljson.Unmarshal(body, &stored); err != nil {
		return nil, err
	}
	if stored.Kind != "Status" || stored.APIVersion != "v1" && stored.APIVersion != "" {
		return body, nil
	}
	public := stored.DeepCopy()
	n.name(public, paths)
	var err error
	if public.Message != stored.Message {
		if body, err = withText(body, public.Message, "message"); err != nil {
			return nil, err
		}
	}
	if public.Details != nil && public.Details.Group != stored.Details.Group {
		return withText(body, public.Details.Group, "details", "group")
	}
	return body, nil
}

// withText returns an object in JSON in which the member at a path is a text. All other
// bytes stay. An object without the member gets it as its last one, after others.
func withText(object []byte, text string, path ...string) ([]byte, error) {
	value, err := json.Marshal(text)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(object))
	if _, err := decoder.Token(); err != nil { // its brace
		return nil, err
	}
	var end int64 // of the last member that was read
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		var member json.RawMessage
		if err := decoder.Decode(&member); err != nil {
			return nil, err
		}
		if end = decoder.InputOffset(); name != path[0] {
			continue
		}
		if len(path) > 1 {
			if value, err = withText(member, text, path[1:]...); err != nil {
				return nil, err
			}
		}
		return slices.Concat(object[:end-int64(len(member))], value, object[end:]), nil
	}
	if end == 0 {
		return nil, fmt.Errorf("no members beside %q", path[0])
	}
	return slices.Concat(object[:end], fmt.Appendf(nil, ",%q:%s", path[0], value), object[end:]), nil
}

// protobufStatus is status for protobuf.
func (f *filter) protobufStatus(body []byte, paths [2]string) ([]byte, error) {
	serializer := protobufserializer.NewSerializer(f.Scheme, f.Scheme)
	obj, _, err := serializer.Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	status, ok := obj.(*metav1.Status)
	if !ok {
		return body, nil
	}
	f.Names.name(status, paths)
	status.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Status"})
	return runtime.Encode(serializer, status)
}

// apiGroup matches how a refusal names a group.
var apiGroup = regexp.MustCompile(`API group "([^"]*)"`)

// name translates the group in the details and in the message of an error. The library
// writes the resource of an error as "deployments.apps "NAME"", that of a refusal
// as API group "apps".
func (n *Names) name(status *metav1.Status, paths [2]string) {
	status.Message = strings.ReplaceAll(status.Message, strconv.Quote(paths[0]), strconv.Quote(paths[1]))
	status.Message = apiGroup.ReplaceAllStringFunc(status.Message, func(found string) string {
		return fmt.Sprintf("API group %q", n.Public(apiGroup.FindStringSubmatch(found)[1]))
	})
	d := status.Details
	if d == nil || d.Kind == "" || n.OfHost(d.Group, d.Kind) || n.isCommon(d.Group) {
		return
	}
	stored := schema.GroupResource{Group: d.Group, Resource: d.Kind}
	d.Group = n.Public(d.Group)
	public := schema.GroupResource{Group: d.Group, Resource: d.Kind}
	status.Message = strings.Replace(status.Message, stored.String()+` "`, public.String()+` "`, 1)
}
