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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"
)

// ReviewNames is the annotation of a webhook configuration that says in which names its
// webhooks get admission reviews: InDomain or InKubernetes. One that is written in the
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

// NameReviews adds ReviewNames to the webhook configurations that pass a chain of
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
	clients []*admissionregistrationv1.WebhookClientConfig
}

// webhooksOf returns the webhooks of a configuration, and nil for another object.
func webhooksOf(obj any) *webhooks {
	switch c := obj.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		w := &webhooks{meta: &c.ObjectMeta}
		for i := range c.Webhooks {
			w.clients = append(w.clients, &c.Webhooks[i].ClientConfig)
		}
		return w
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		w := &webhooks{meta: &c.ObjectMeta}
		for i := range c.Webhooks {
			w.clients = append(w.clients, &c.Webhooks[i].ClientConfig)
		}
		return w
	}
	return nil
}

// MarkReviews marks the webhooks of configurations that an informer has read. It
// implements cache.TransformFunc.
func MarkReviews(obj any) (any, error) {
	if c := webhooksOf(obj); c != nil && c.meta.Annotations[ReviewNames] == InDomain {
		for _, client := range c.clients {
			mark(client)
		}
	}
	return obj, nil
}

// mark may be called again.
func mark(client *admissionregistrationv1.WebhookClientConfig) {
	marked := func(path string) string {
		if strings.HasPrefix(path, inDomain) {
			return path
		}
		return inDomain + "/" + strings.TrimPrefix(path, "/")
	}
	if client.Service != nil {
		client.Service.Path = ptr.To(marked(ptr.Deref(client.Service.Path, "")))
	}
	if client.URL != nil {
		if location, err := url.Parse(*client.URL); err == nil { // it is validated when it is written
			location.Path, location.RawPath = marked(location.Path), ""
			client.URL = ptr.To(location.String())
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
	body, reviewed, err := r.f.review(body)
	if err != nil {
		return nil, fmt.Errorf("admission review: %w", err)
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
	answer = r.f.reviewAnswer(answer, reviewed)
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(answer)), int64(len(answer))
	resp.Header.Del("Content-Length")
	return resp, nil
}

// review translates an AdmissionReview, and returns whose objects it has.
func (f *filter) review(body []byte) ([]byte, route, error) {
	var review, request map[string]json.RawMessage
	if err := json.Unmarshal(body, &review); err != nil {
		return nil, route{}, err
	}
	if err := json.Unmarshal(review["request"], &request); err != nil {
		return nil, route{}, err
	}
	var of metav1.GroupVersionResource
	if err := json.Unmarshal(request["resource"], &of); err != nil {
		return nil, route{}, err
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
		if !isCommon(stored) {
			group["group"] = f.Names.Public(stored)
		}
		var err error
		if request[name], err = json.Marshal(group); err != nil {
			return nil, route{}, err
		}
	}
	var err error
	if review["request"], err = json.Marshal(request); err != nil {
		return nil, route{}, err
	}
	body, err = json.Marshal(review)
	return body, to, err
}

// reviewAnswer translates the patch in the answer to a review. An answer that cannot be
// read stays as it is: the library says what is wrong with it.
func (f *filter) reviewAnswer(body []byte, to route) []byte {
	var review, response map[string]json.RawMessage
	var patch []byte
	if json.Unmarshal(body, &review) != nil || json.Unmarshal(review["response"], &response) != nil || json.Unmarshal(response["patch"], &patch) != nil {
		return body
	}
	var err error
	if response["patch"], err = json.Marshal(patchOperations(f.toStored(to, schema.GroupVersionKind{}), patch)); err != nil {
		return body
	}
	if review["response"], err = json.Marshal(response); err != nil {
		return body
	}
	if translated, err := json.Marshal(review); err == nil {
		return translated
	}
	return body
}
