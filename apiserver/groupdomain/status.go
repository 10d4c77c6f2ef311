package groupdomain

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	protobufserializer "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
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

// status returns an error in the names of the domain. paths are the stored path of the
// request and the one on the wire.
func (f *filter) status(contentType string, body []byte, paths [2]string) ([]byte, error) {
	var status metav1.Status
	switch {
	case strings.HasPrefix(contentType, runtime.ContentTypeJSON):
		if err := json.Unmarshal(body, &status); err != nil {
			return nil, err
		}
		f.Names.name(&status, paths)
		return json.Marshal(status)
	case strings.HasPrefix(contentType, runtime.ContentTypeYAML):
		if err := yaml.Unmarshal(body, &status); err != nil {
			return nil, err
		}
		f.Names.name(&status, paths)
		return yaml.Marshal(status)
	case strings.HasPrefix(contentType, runtime.ContentTypeProtobuf):
		return f.protobufStatus(body, paths)
	}
	return body, nil
}

// protobufStatus is status for protobuf.
func (f *filter) protobufStatus(body []byte, paths [2]string) ([]byte, error) {
	serializer := protobufserializer.NewSerializer(f.Scheme, f.Scheme)
	obj, _, err := serializer.Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	if status, ok := obj.(*metav1.Status); ok {
		f.Names.name(status, paths)
		status.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Status"})
	}
	return runtime.Encode(serializer, obj)
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
	if d == nil || d.Kind == "" || n.OfHost(d.Group, d.Kind) || isCommon(d.Group) {
		return
	}
	stored := schema.GroupResource{Group: d.Group, Resource: d.Kind}
	d.Group = n.Public(d.Group)
	public := schema.GroupResource{Group: d.Group, Resource: d.Kind}
	status.Message = strings.Replace(status.Message, stored.String()+` "`, public.String()+` "`, 1)
}
