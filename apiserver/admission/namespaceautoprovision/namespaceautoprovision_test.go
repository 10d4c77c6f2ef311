package namespaceautoprovision

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

func TestAMissingNamespaceIsCreated(t *testing.T) {
	pod := admissiontest.Pod()
	for _, test := range []struct {
		rule    string
		there   []runtime.Object
		request admissiontest.Request
		want    bool
	}{
		{"a missing one", nil, admissiontest.Request{Object: pod}, true},
		{"one that exists", []runtime.Object{admissiontest.Namespace("ns")}, admissiontest.Request{Object: pod}, true},
		{"not in a dry run", nil, admissiontest.Request{Object: pod, DryRun: true}, false},
		{"not for an update", nil, admissiontest.Request{Object: pod, Old: pod}, false},
	} {
		t.Run(test.rule, func(t *testing.T) {
			p := admissiontest.Server{Objects: test.there}.Start(t, Register)
			if err := p.Send(t, test.request); err != nil {
				t.Fatal(err)
			}
			_, err := p.Client.CoreV1().Namespaces().Get(t.Context(), "ns", metav1.GetOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
			if got := err == nil; got != test.want {
				t.Errorf("the namespace exists: %t", got)
			}
		})
	}
}
