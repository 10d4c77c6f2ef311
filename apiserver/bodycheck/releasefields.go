package bodycheck

import (
	"bytes"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1beta1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1beta1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/release/fields"
)

// kindOfBody is the kind of the body of a resource's requests.
type kindOfBody struct {
	gvk schema.GroupVersionKind
	of  reflect.Type
	// decoded reports whether decoders find the fields of creates and updates
	// (fields.Codecs), and only patches are left.
	decoded bool
}

// selectReleaseFields selects the bodies of patches, other than apply patches, and all
// writes of definitions of custom resources. Fields that the release lacks are treated in them as
// fieldValidation says of unknown fields; here, because the handlers
// validate what a patch makes of the object, which may have such fields already. The
// statuses that node agents report keep them.
func selectReleaseFields(kinds []*resource.Kind, lacking *fields.Fields) func(req *http.Request) Func {
	if lacking == nil {
		return func(*http.Request) Func { return nil }
	}
	bodies := kindsOfBodies(kinds)
	return func(req *http.Request) Func {
		kind, info, ok := bodies.of(req)
		if !ok || isApply(req) || kind.decoded && req.Method != http.MethodPatch || isAgentsReport(req, info) {
			return nil
		}
		n := lacking.Of(kind.gvk, kind.of)
		if n == nil {
			return nil
		}
		return func(body []byte) ([]byte, error) {
			if mediaType(req) == runtime.ContentTypeProtobuf {
				return cutProtobuf(body, n)
			}
			if !n.MayLack(body) {
				return body, nil
			}
			return cutFields(req, body, n, kind.of)
		}
	}
}

// isAgentsReport reports whether a node agent patches a status. Agents report the same at
// every release, and compare what they report with what is stored.
func isAgentsReport(req *http.Request, info *request.RequestInfo) bool {
	client, ok := request.UserFrom(req.Context())
	return ok && info.Subresource == "status" && slices.Contains(client.GetGroups(), user.NodesGroup)
}

// bodyKinds are the kinds of the bodies of writes.
type bodyKinds map[schema.GroupVersionResource]kindOfBody

// of returns the kind of the body of a request, and reports whether the request writes an
// object, or a part of it, of a known kind.
func (b bodyKinds) of(req *http.Request) (kindOfBody, *request.RequestInfo, bool) {
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok {
		return kindOfBody{}, nil, false
	}
	switch req.Method {
	case http.MethodPatch, http.MethodPost, http.MethodPut:
	default:
		return kindOfBody{}, nil, false
	}
	kind, ok := b[schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}]
	if info.Subresource == "scale" {
		kind = kindOfBody{autoscalingv1.SchemeGroupVersion.WithKind("Scale"), reflect.TypeFor[autoscalingv1.Scale](), true}
	}
	return kind, info, ok
}

// kindsOfBodies returns the kinds, definitions of custom resources and API services among
// them.
func kindsOfBodies(kinds []*resource.Kind) bodyKinds {
	bodies := bodyKinds{}
	for _, k := range kinds {
		add := func(gvk schema.GroupVersionKind, obj runtime.Object) {
			bodies[gvk.GroupVersion().WithResource(k.Name)] = kindOfBody{gvk, reflect.TypeOf(obj).Elem(), true}
		}
		add(k.Hub, k.New())
		for _, version := range k.Versions {
			add(version.GVK, version.New())
		}
	}
	// No release lacks a field of these, but the check "strategic values" needs them.
	for _, gv := range []schema.GroupVersion{apiregistrationv1.SchemeGroupVersion, apiregistrationv1beta1.SchemeGroupVersion} {
		bodies[gv.WithResource("apiservices")] = kindOfBody{gv.WithKind("APIService"), reflect.TypeFor[apiregistrationv1.APIService](), false}
	}
	const kind, name = "CustomResourceDefinition", "customresourcedefinitions"
	bodies[apiextensionsv1.SchemeGroupVersion.WithResource(name)] = kindOfBody{
		apiextensionsv1.SchemeGroupVersion.WithKind(kind), reflect.TypeFor[apiextensionsv1.CustomResourceDefinition](), false,
	}
	bodies[apiextensionsv1beta1.SchemeGroupVersion.WithResource(name)] = kindOfBody{
		apiextensionsv1beta1.SchemeGroupVersion.WithKind(kind), reflect.TypeFor[apiextensionsv1beta1.CustomResourceDefinition](), false,
	}
	return bodies
}

// cutFields cuts the fields of an object or a patch that the node lacks, and treats them
// as the request says. A body that it cannot read is the handler's to refuse.
func cutFields(req *http.Request, body []byte, n *fields.Node, of reflect.Type) ([]byte, error) {
	rest, document, found := cut(req, body, n)
	if len(found) == 0 {
		return body, nil
	}
	if req.URL.Query().Get("fieldValidation") == metav1.FieldValidationStrict {
		return nil, errors.New("strict decoding error: " + strings.Join(append(otherMisfits(document, of), found...), ", "))
	}
	return rest, treatUnknown(req, found)
}

// cut returns a body without the fields that the node lacks, the body as JSON, and a text
// for each field. Without any, and for a body that it cannot read, it returns the body. A
// JSON patch is no document.
func cut(req *http.Request, body []byte, n *fields.Node) (rest, document []byte, found []string) {
	document = body
	var err error
	switch contentType := mediaType(req); {
	case contentType == string(types.JSONPatchType):
		document = nil
		rest, found, err = n.CutOperations(body)
	case strings.HasSuffix(contentType, "yaml"):
		if document, err = yaml.YAMLToJSON(body); err != nil {
			return body, nil, nil
		}
		rest, found, err = n.Cut(document)
	default:
		rest, found, err = n.Cut(document)
	}
	if err != nil || len(found) == 0 {
		return body, nil, nil
	}
	return rest, document, found
}

// definitionsOnly decodes and encodes definitions of custom resources in protobuf.
var definitionsOnly = sync.OnceValues(func() (runtime.Serializer, error) {
	scheme := runtime.NewScheme()
	err := errors.Join(apiextensionsv1.AddToScheme(scheme), apiextensionsv1beta1.AddToScheme(scheme))
	return protobuf.NewSerializer(scheme, scheme), err
})

// cutProtobuf removes the fields that the node lacks from a definition in protobuf, which
// has no unknown fields: there is nothing to report. A body that it cannot read is the
// handler's to refuse.
func cutProtobuf(body []byte, n *fields.Node) ([]byte, error) {
	serializer, err := definitionsOnly()
	if err != nil {
		return nil, err
	}
	obj, gvk, err := serializer.Decode(body, nil, nil)
	if err != nil || !n.Fits(obj) || len(n.Values(obj)) == 0 {
		return body, nil
	}
	n.Remove(obj)
	obj.GetObjectKind().SetGroupVersionKind(*gvk)
	var rest bytes.Buffer
	if err := serializer.Encode(obj, &rest); err != nil {
		return nil, err
	}
	return rest.Bytes(), nil
}

// otherMisfits returns texts for the duplicate fields of a document and for those that
// no release has, which the handler would name if it saw the document.
func otherMisfits(document []byte, of reflect.Type) []string {
	var object map[string]any
	duplicates, err := kjson.UnmarshalStrict(document, &object)
	if err != nil {
		return nil
	}
	var found misfits
	found.walk(object, of, "")
	// The directives of strategic merge patches are no fields.
	found.unknown = slices.DeleteFunc(found.unknown, func(text string) bool { return strings.ContainsAny(text, "$") })
	slices.Sort(found.unknown)
	var texts []string
	for _, duplicate := range duplicates {
		texts = append(texts, duplicate.Error())
	}
	return append(texts, found.unknown...)
}
