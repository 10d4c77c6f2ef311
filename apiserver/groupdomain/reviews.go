package groupdomain

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"
)

// ReviewNames is the annotation of a webhook configuration, or of a definition of custom
// resources with a conversion webhook, that says in which names its webhooks get reviews:
// InDomain or InKubernetes. One that is written in the
// domain's names gets the former. Without it, reviews are in Kubernetes' names, which
// unmodified operators expect.
const (
	ReviewNames  = "admission.svc.dev/names"
	InDomain     = "domain"
	InKubernetes = "kubernetes"
)

// inDomain begins the paths of webhooks whose reviews are in the domain's names, in the
// server's own copies of their configurations: a transport knows a webhook by its URL
// only.
const inDomain = "/.names-of-the-domain"

// NameReviews adds ReviewNames to the configurations of webhooks that pass a chain of
// admission plugins.
func NameReviews(chain admission.Interface) admission.Interface {
	return admission.NewChainHandler(chain, &reviewNames{admission.NewHandler(admission.Create, admission.Update)})
}

type reviewNames struct{ *admission.Handler }

var _ admission.MutationInterface = &reviewNames{}

// Admit implements admission.MutationInterface.
func (*reviewNames) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	configuration := webhooksOf(a.GetObject())
	if configuration == nil || a.GetSubresource() != "" {
		return nil
	}
	annotations := configuration.meta.GetAnnotations()
	switch value, given := annotations[ReviewNames]; {
	case given && value != InDomain && value != InKubernetes:
		return apierrors.NewBadRequest(fmt.Sprintf("metadata.annotations[%s]: Unsupported value: %q: must be %q or %q", ReviewNames, value, InDomain, InKubernetes))
	case given:
		return nil
	}
	names := InDomain
	if old := webhooksOf(a.GetOldObject()); old != nil {
		names = old.meta.GetAnnotations()[ReviewNames] // an update keeps them
	} else if UnderStoredNames(ctx) {
		names = ""
	}
	if names != "" {
		metav1.SetMetaDataAnnotation(configuration.meta, ReviewNames, names)
	}
	return nil
}

// webhooks are those of a configuration.
type webhooks struct {
	meta    *metav1.ObjectMeta
	targets []target
}

// target is where a webhook is reached: at a URL or, if that is nil, at a path of a
// service, which is nil without one.
type target struct{ url, path **string }

// webhooksOf returns the webhooks of a configuration, and nil for another object.
func webhooksOf(obj any) *webhooks {
	switch c := obj.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		w := &webhooks{meta: &c.ObjectMeta}
		for i := range c.Webhooks {
			w.targets = append(w.targets, targetOf(&c.Webhooks[i].ClientConfig))
		}
		return w
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		w := &webhooks{meta: &c.ObjectMeta}
		for i := range c.Webhooks {
			w.targets = append(w.targets, targetOf(&c.Webhooks[i].ClientConfig))
		}
		return w
	case *apiextensions.CustomResourceDefinition: // in admission
		if c.Spec.Conversion == nil || c.Spec.Conversion.Strategy != apiextensions.WebhookConverter {
			return nil
		}
		return &webhooks{meta: &c.ObjectMeta}
	case *apiextensionsv1.CustomResourceDefinition: // of an informer
		if c.Spec.Conversion == nil || c.Spec.Conversion.Webhook == nil || c.Spec.Conversion.Webhook.ClientConfig == nil {
			return nil
		}
		client := c.Spec.Conversion.Webhook.ClientConfig
		to := target{url: &client.URL}
		if client.Service != nil {
			to.path = &client.Service.Path
		}
		return &webhooks{meta: &c.ObjectMeta, targets: []target{to}}
	}
	return nil
}

func targetOf(client *admissionregistrationv1.WebhookClientConfig) target {
	to := target{url: &client.URL}
	if client.Service != nil {
		to.path = &client.Service.Path
	}
	return to
}

// MarkReviews marks the webhooks of configurations that an informer has read. It
// implements cache.TransformFunc.
func MarkReviews(obj any) (any, error) {
	if c := webhooksOf(obj); c != nil && c.meta.Annotations[ReviewNames] == InDomain {
		for _, to := range c.targets {
			to.mark()
		}
	}
	return obj, nil
}

// mark may be called again.
func (t target) mark() {
	marked := func(path string) string {
		if strings.HasPrefix(path, inDomain) {
			return path
		}
		return inDomain + "/" + strings.TrimPrefix(path, "/")
	}
	if t.path != nil {
		*t.path = ptr.To(marked(ptr.Deref(*t.path, "")))
	}
	if *t.url != nil {
		if location, err := url.Parse(**t.url); err == nil { // it is validated when it is written
			location.Path, location.RawPath = marked(location.Path), ""
			*t.url = ptr.To(location.String())
		}
	}
}

// Reviews translates the reviews of the webhooks that MarkReviews has marked.
type Reviews struct{ f *filter }

// NewReviews returns the translation of a server's reviews.
func NewReviews(config Config) Reviews { return Reviews{&filter{Config: config}} }

// Wrap returns a transport that translates reviews, and the patches in their responses.
func (r Reviews) Wrap(next http.RoundTripper) http.RoundTripper { return reviewer{r.f, next} }

type reviewer struct {
	f    *filter
	next http.RoundTripper
}

// WrappedRoundTripper implements net.RoundTripperWrapper of apimachinery.
func (r reviewer) WrappedRoundTripper() http.RoundTripper { return r.next }

// RoundTrip implements http.RoundTripper.
func (r reviewer) RoundTrip(req *http.Request) (*http.Response, error) {
	path, marked := strings.CutPrefix(req.URL.Path, inDomain)
	if !marked || req.Body == nil {
		return r.next.RoundTrip(req)
	}
	body, err := io.ReadAll(req.Body)
	if closeErr := req.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, err
	}
	body, translateAnswer, err := r.f.review(body)
	if err != nil {
		return nil, fmt.Errorf("review for a webhook: %w", err)
	}
	req = req.Clone(req.Context())
	req.URL.Path, req.URL.RawPath = path, ""
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	resp, err := r.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	answer, err := io.ReadAll(resp.Body) // it is limited
	if closeErr := resp.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, err
	}
	answer = translateAnswer(answer)
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(answer)), int64(len(answer))
	resp.Header.Del("Content-Length")
	return resp, nil
}

// review translates an AdmissionReview or a ConversionReview, and returns what translates
// the answer. An answer that cannot be read stays as it is: the library says what is wrong
// with it.
func (f *filter) review(body []byte) ([]byte, func(answer []byte) []byte, error) {
	var review, request map[string]json.RawMessage
	if err := json.Unmarshal(body, &review); err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal(review["request"], &request); err != nil {
		return nil, nil, err
	}
	var translateAnswer func(answer []byte) []byte
	var kind string
	err := json.Unmarshal(review["kind"], &kind)
	switch {
	case err != nil:
		return nil, nil, err
	case kind == "ConversionReview":
		translateAnswer, err = f.conversion(request)
	default:
		translateAnswer, err = f.admission(request)
	}
	if err != nil {
		return nil, nil, err
	}
	if review["request"], err = json.Marshal(request); err != nil {
		return nil, nil, err
	}
	body, err = json.Marshal(review)
	return body, translateAnswer, err
}

// admission translates the request of an AdmissionReview, and returns what translates the
// answer.
func (f *filter) admission(request map[string]json.RawMessage) (func(answer []byte) []byte, error) {
	var of metav1.GroupVersionResource
	if err := json.Unmarshal(request["resource"], &of); err != nil {
		return nil, err
	}
	to := route{gv: schema.GroupVersion{Group: of.Group, Version: of.Version}, resource: of.Resource}
	for _, name := range []string{"object", "oldObject"} {
		if value, there := request[name]; there {
			request[name] = f.toPublic(to).json(value, "")
		}
	}
	for _, name := range []string{"kind", "resource", "requestKind", "requestResource"} {
		var group map[string]any
		if value, there := request[name]; !there || json.Unmarshal(value, &group) != nil || group == nil {
			continue
		}
		stored, _ := group["group"].(string)
		if !f.Names.isCommon(stored) {
			group["group"] = f.Names.Public(stored)
		}
		var err error
		if request[name], err = json.Marshal(group); err != nil {
			return nil, err
		}
	}
	return func(answer []byte) []byte { return f.admissionAnswer(answer, to) }, nil
}

// conversion translates the request of a ConversionReview, and returns what translates the
// answer.
func (f *filter) conversion(request map[string]json.RawMessage) (func(answer []byte) []byte, error) {
	var desired string
	if err := json.Unmarshal(request["desiredAPIVersion"], &desired); err != nil {
		return nil, err
	}
	gv, err := schema.ParseGroupVersion(desired)
	if err != nil {
		return nil, err
	}
	public, stored := f.Names.toWire(), f.Names.toStorage()
	if request["desiredAPIVersion"], err = json.Marshal(public.apiVersion(desired)); err != nil {
		return nil, err
	}
	of := schema.GroupResource{Group: gv.Group}
	if request["objects"], err = translateList(request["objects"], public.object(of)); err != nil {
		return nil, err
	}
	return func(answer []byte) []byte { return conversionAnswer(answer, stored.object(of)) }, nil
}

// translateList translates the objects of a list.
func translateList(list json.RawMessage, object *node) (json.RawMessage, error) {
	var objects []json.RawMessage
	if err := json.Unmarshal(list, &objects); err != nil {
		return nil, err
	}
	for i := range objects {
		objects[i] = object.json(objects[i], "")
	}
	return json.Marshal(objects)
}

// conversionAnswer translates the objects in the answer to a ConversionReview.
func conversionAnswer(body []byte, object *node) []byte {
	return changeResponse(body, func(response map[string]json.RawMessage) (err error) {
		response["convertedObjects"], err = translateList(response["convertedObjects"], object)
		return err
	})
}

// admissionAnswer translates the patch in the answer to an AdmissionReview.
func (f *filter) admissionAnswer(body []byte, to route) []byte {
	return changeResponse(body, func(response map[string]json.RawMessage) error {
		var patch []byte
		err := json.Unmarshal(response["patch"], &patch)
		if err == nil {
			response["patch"], err = json.Marshal(patchOperations(f.toStored(to, schema.GroupVersionKind{}), patch))
		}
		return err
	})
}

// changeResponse changes the response of a review. After an error the review stays as it
// is.
func changeResponse(body []byte, change func(response map[string]json.RawMessage) error) []byte {
	var review, response map[string]json.RawMessage
	if json.Unmarshal(body, &review) != nil || json.Unmarshal(review["response"], &response) != nil || change(response) != nil {
		return body
	}
	var err error
	if review["response"], err = json.Marshal(response); err != nil {
		return body
	}
	if changed, err := json.Marshal(review); err == nil {
		return changed
	}
	return body
}
