package convert

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/internal/releases"
)

func TestLive(t *testing.T) {
	table, err := releases.Load()
	if err != nil {
		t.Fatal(err)
	}
	c := &Converter{Table: table, Release: 25, OnlyRemoved: true}
	applied := func(text string) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{Name: "a", Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: text}}
	}
	at := metav1.NewTime(time.Date(2022, 1, 2, 3, 4, 5, 0, time.UTC))
	for _, tc := range []struct {
		name string
		meta *metav1.ObjectMeta
		code int
		want string
	}{
		{"fine", applied(`{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"a"}}`), 0, ""},
		{"an old manifest", applied(`{"apiVersion":"batch/v1beta1","kind":"CronJob","metadata":{"name":"a"}}`), 1, "in the manifest that was applied: batch/v1beta1 CronJob is not served since 1.25; use batch/v1 CronJob"},
		{"an annotation that is not JSON", applied("{"), 0, "is invalid"},
		{"an old writer", &metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "helm", APIVersion: "batch/v1beta1", Time: &at}, {Manager: "helm", APIVersion: "batch/v1beta1", Subresource: "status"},
			{Manager: "svc", APIVersion: "batch/v1"}, {Manager: "odd", APIVersion: "a/b/c"},
		}}, 0, `"helm" has written it as batch/v1beta1 at 2022-01-02T03:04:05Z, which is not served since 1.25`},
	} {
		o := c.Live(schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "CronJob"}, tc.meta)
		var messages []string
		for _, f := range o.Findings {
			messages = append(messages, f.Message)
		}
		if got := strings.Join(messages, "; "); o.Code() != tc.code || (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) || len(messages) > 1 {
			t.Errorf("%s: code %d, %s", tc.name, o.Code(), got)
		}
	}
}

func TestRequested(t *testing.T) {
	c := &Converter{Release: 25}
	gvr := schema.GroupVersionResource{Group: "policy", Version: "v1beta1", Resource: "x"}
	for removed, want := range map[string]bool{"1.25": true, "1.22": true, "1.26": false, "": false, "2.0": false} {
		if o, ok := c.Requested(gvr, "status", removed); ok != want || ok && (o.Kind != "x/status" || o.Code() != 2) {
			t.Errorf("%q: %v %+v", removed, ok, o)
		}
	}
}

func TestALiveObjectWhoseKindTheReleaseDoesNotServe(t *testing.T) {
	table, err := releases.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		release releases.Release
		gvk     schema.GroupVersionKind
		code    int
	}{
		// newer than the release
		{25, schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicy"}, 2},
		{26, schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicy"}, 0}, // it is served as v1alpha1
		{18, schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}, 0},
		// removed
		{24, schema.GroupVersionKind{Group: "policy", Version: "v1beta1", Kind: "PodSecurityPolicy"}, 0},
		{25, schema.GroupVersionKind{Group: "policy", Version: "v1beta1", Kind: "PodSecurityPolicy"}, 2},
		{31, schema.GroupVersionKind{Group: "resource.k8s.io", Version: "v1alpha2", Kind: "ResourceClass"}, 2},
		{25, schema.GroupVersionKind{Group: "batch", Version: "v1beta1", Kind: "CronJob"}, 0},
		{22, schema.GroupVersionKind{Group: "extensions", Version: "v1beta1", Kind: "Ingress"}, 0}, // it is served in another group
		{25, schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}, 0},
	} {
		c := &Converter{Table: table, Release: tc.release, OnlyRemoved: true}
		if o := c.Live(tc.gvk, &metav1.ObjectMeta{Name: "a"}); o.Code() != tc.code {
			t.Errorf("%v at %v: %+v", tc.gvk, tc.release, o)
		}
	}
}

func TestALiveObjectOfANewerKindIsAMissingVersion(t *testing.T) {
	table, err := releases.Load()
	if err != nil {
		t.Fatal(err)
	}
	c := &Converter{Table: table, Release: 25, OnlyRemoved: true}
	o := c.Live(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicy"}, &metav1.ObjectMeta{Name: "a"})
	const want = "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy is new in 1.30: the object is out of reach then"
	if len(o.Findings) != 1 || o.Findings[0].Rule != MissingVersion || o.Findings[0].Message != want {
		t.Errorf("found %+v, want %q", o.Findings, want)
	}
}
