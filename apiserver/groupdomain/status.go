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

// writeStatus writes an error of the filter itself.
func writeStatus(w http.ResponseWriter, code int, message string) {
	reason := metav1.StatusReasonNotFound
	if code == http.StatusBadRequest {
		reason = metav1.StatusReasonBadRequest
	}
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(code)
	_, _ = w.Write(body) // an error means that the client has gone
}

// status returns an error in the names of the domain. paths are the stored path of the
// request and the one on the wire.
func (n *Names) status(contentType string, body []byte, paths [2]string) ([]byte, error) {
	var status metav1.Status
	switch {
	case strings.HasPrefix(contentType, runtime.ContentTypeJSON):
		if err := json.Unmarshal(body, &status); err != nil {
			return nil, err
		}
		n.name(&status, paths)
		return json.Marshal(status)
	case strings.HasPrefix(contentType, runtime.ContentTypeYAML):
		if err := yaml.Unmarshal(body, &status); err != nil {
			return nil, err
		}
		n.name(&status, paths)
		return yaml.Marshal(status)
	case strings.HasPrefix(contentType, runtime.ContentTypeProtobuf):
		return n.protobufStatus(body, paths)
	}
	return body, nil
}

// protobufStatus is status for protobuf.
func (n *Names) protobufStatus(body []byte, paths [2]string) ([]byte, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	serializer := protobufserializer.NewSerializer(scheme, scheme)
	obj, _, err := serializer.Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	if status, ok := obj.(*metav1.Status); ok {
		n.name(status, paths)
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
