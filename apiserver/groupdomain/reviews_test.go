package groupdomain

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis"
)

func TestTheAddressAtWhichAConfigurationIsWrittenSaysTheNamesOfItsReviews(t *testing.T) {
	canonical := context.WithValue(t.Context(), contextKey{}, true)
	of := func(names string) *admissionregistrationv1.MutatingWebhookConfiguration {
		c := &admissionregistrationv1.MutatingWebhookConfiguration{}
		if names != "" {
			c.Annotations = map[string]string{ReviewNames: names}
		}
		return c
	}
	for name, test := range map[string]struct {
		ctx       context.Context
		obj, old  runtime.Object
		want      string
		isRefused bool
	}{
		"created in the domain's names":       {ctx: t.Context(), obj: of(""), want: InDomain},
		"created at the fleet's address":      {ctx: canonical, obj: of("")},
		"created with the annotation":         {ctx: canonical, obj: of(InDomain), want: InDomain},
		"created with Kubernetes' names":      {ctx: t.Context(), obj: of(InKubernetes), want: InKubernetes},
		"created with another value":          {ctx: t.Context(), obj: of("mine"), isRefused: true},
		"updated at the other address":        {ctx: canonical, obj: of(""), old: of(InDomain), want: InDomain},
		"updated, without names before":       {ctx: t.Context(), obj: of(""), old: of("")},
		"updated with another annotation":     {ctx: t.Context(), obj: of(InKubernetes), old: of(InDomain), want: InKubernetes},
		"updated at the fleet's own, without": {ctx: canonical, obj: of(""), old: of("")},
	} {
		operation := admission.Create
		if test.old != nil {
			operation = admission.Update
		}
		a := admission.NewAttributesRecord(test.obj, test.old, schema.GroupVersionKind{}, "", "x", schema.GroupVersionResource{}, "", operation, nil, false, nil)
		err := NameReviews(admission.NewChainHandler()).(admission.MutationInterface).Admit(test.ctx, a, nil)
		if got := webhooksOf(test.obj).meta.Annotations[ReviewNames]; (err != nil) != test.isRefused || err == nil && got != test.want {
			t.Errorf("%s: names %q, %v, want %q", name, got, err, test.want)
		}
	}
}

func TestWebhooksOfTheDomainAreMarkedOnce(t *testing.T) {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{Webhooks: []admissionregistrationv1.ValidatingWebhook{
		{ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://hook.example.com/a?b=c")}},
		{ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Name: "hook"}}},
	}}
	if _, err := MarkReviews(c); err != nil || *c.Webhooks[0].ClientConfig.URL != "https://hook.example.com/a?b=c" {
		t.Errorf("without the annotation: %q, %v", *c.Webhooks[0].ClientConfig.URL, err)
	}
	c.Annotations = map[string]string{ReviewNames: InDomain}
	for range 2 {
		if _, err := MarkReviews(c); err != nil {
			t.Fatal(err)
		}
		if got, want := *c.Webhooks[0].ClientConfig.URL, "https://hook.example.com/.names-of-the-domain/a?b=c"; got != want {
			t.Errorf("the URL is %q, want %q", got, want)
		}
		if got, want := *c.Webhooks[1].ClientConfig.Service.Path, "/.names-of-the-domain/"; got != want {
			t.Errorf("the path is %q, want %q", got, want)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestConversionWebhooksAreMarkedAndNamed(t *testing.T) {
	stored := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{ReviewNames: InDomain}}}
	if _, err := MarkReviews(stored); err != nil {
		t.Fatal(err)
	}
	stored.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Webhook: &apiextensionsv1.WebhookConversion{
		ClientConfig: &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Path: ptr.To("/convert")}}}}
	for range 2 {
		if _, err := MarkReviews(stored); err != nil {
			t.Fatal(err)
		}
		if got, want := *stored.Spec.Conversion.Webhook.ClientConfig.Service.Path, "/.names-of-the-domain/convert"; got != want {
			t.Errorf("the path is %q, want %q", got, want)
		}
	}
	for strategy, want := range map[apiextensions.ConversionStrategyType]string{apiextensions.WebhookConverter: InDomain, apiextensions.NoneConverter: ""} {
		crd := &apiextensions.CustomResourceDefinition{Spec: apiextensions.CustomResourceDefinitionSpec{Conversion: &apiextensions.CustomResourceConversion{Strategy: strategy}}}
		a := admission.NewAttributesRecord(crd, nil, schema.GroupVersionKind{}, "", "x", schema.GroupVersionResource{}, "", admission.Create, nil, false, nil)
		if err := NameReviews(admission.NewChainHandler()).(admission.MutationInterface).Admit(t.Context(), a, nil); err != nil || crd.Annotations[ReviewNames] != want {
			t.Errorf("with the strategy %s: %v, %v", strategy, crd.Annotations, err)
		}
	}
}

func TestConversionReviewsOfMarkedWebhooksAreInTheDomainsNames(t *testing.T) {
	const (
		review = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"desiredAPIVersion":"example.com%[1]s/v2",` +
			`"objects":[{"apiVersion":"example.com%[1]s/v1","kind":"Widget","items":[{"apiVersion":"apps/v1"}],"metadata":{"ownerReferences":[{"apiVersion":%[2]q}]}}],"uid":"u"}}`
		answer = `{"response":{"convertedObjects":[{"apiVersion":"example.com%[1]s/v2","kind":"Widget","metadata":{"ownerReferences":[{"apiVersion":%[2]q}]}}],"uid":"u"}}`
	)
	for given, want := range map[string]string{
		fmt.Sprintf(answer, ".svc.dev", "core.svc.dev/v1"): fmt.Sprintf(answer, "", "v1"),
		`{"response":{"result":{"status":"Failure"}}}`:     `{"response":{"result":{"status":"Failure"}}}`,
		`oops`: `oops`,
	} {
		transport := NewReviews(Config{Names: newNames(t)}).Wrap(roundTripper(func(req *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(req.Body)
			if want := fmt.Sprintf(review, ".svc.dev", "core.svc.dev/v1"); err != nil || string(body) != want {
				t.Errorf("sent %s, %v,\nwant %s", body, err, want)
			}
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(given))}, nil
		}))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://hook/.names-of-the-domain/convert", strings.NewReader(fmt.Sprintf(review, "", "v1")))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(resp.Body); err != nil || string(got) != want {
			t.Errorf("the answer is %s, %v, want %s", got, err, want)
		}
	}
}

func TestReviewsOfMarkedWebhooksAreInTheDomainsNames(t *testing.T) {
	scheme, err := apis.NewScheme(apis.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	reviews := NewReviews(Config{Names: newNames(t), Scheme: scheme, Kinds: map[schema.GroupVersionResource]schema.GroupVersionKind{
		{Version: "v1", Resource: "configmaps"}: {Version: "v1", Kind: "ConfigMap"},
	}})
	const review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"kind":{"group":%[1]q,"kind":"ConfigMap","version":"v1"},` +
		`"object":{"apiVersion":%[2]q,"kind":"ConfigMap","metadata":{"ownerReferences":[{"apiVersion":%[3]q}]}},"oldObject":null,` +
		`"options":{"apiVersion":"meta.k8s.io/v1","kind":"CreateOptions"},"resource":{"group":%[1]q,"resource":"configmaps","version":"v1"},"uid":"u"}}`
	stored, public := fmt.Sprintf(review, "", "v1", "apps/v1"), fmt.Sprintf(review, "core.svc.dev", "core.svc.dev/v1", "apps.svc.dev/v1")
	answer := func(apiVersion string) string {
		patch := `[{"op":"add","path":"/metadata/ownerReferences/-","value":{"apiVersion":"` + apiVersion + `"}}]`
		return `{"response":{"allowed":true,"patch":"` + base64.StdEncoding.EncodeToString([]byte(patch)) + `","uid":"u"}}`
	}
	for name, test := range map[string]struct{ url, path, body, sent, answer, want string }{
		"marked":          {"https://hook/.names-of-the-domain/a", "/a", stored, public, answer("apps.svc.dev/v1"), answer("apps/v1")},
		"marked, no path": {"https://hook/.names-of-the-domain/", "/", stored, public, `{"response":{"allowed":true}}`, `{"response":{"allowed":true}}`},
		"wrong answer":    {"https://hook/.names-of-the-domain/", "/", stored, public, `oops`, `oops`},
		"not marked":      {"https://hook/a", "/a", stored, stored, answer("apps/v1"), answer("apps/v1")},
	} {
		transport := reviews.Wrap(roundTripper(func(req *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(req.Body)
			if err != nil || req.URL.Path != test.path || string(body) != test.sent || req.ContentLength != int64(len(body)) {
				t.Errorf("%s: %s gets %s, %v,\nwant %s %s", name, req.URL.Path, body, err, test.path, test.sent)
			}
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(test.answer))}, nil
		}))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, test.url, strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if err != nil || string(got) != test.want {
			t.Errorf("%s: the answer is %s, %v, want %s", name, got, err, test.want)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://hook/.names-of-the-domain/", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := reviews.Wrap(nil).RoundTrip(req); err == nil {
		resp.Body.Close()
		t.Error("what is no review is sent")
	}
}
