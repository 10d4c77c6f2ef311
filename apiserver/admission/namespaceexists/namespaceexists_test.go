package namespaceexists

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

func TestTheNamespaceMustExist(t *testing.T) {
	pod := admissiontest.Pod()
	requests := []admissiontest.Request{{Object: pod}, {Object: pod, Old: pod}, {Old: pod}}
	p := admissiontest.Server{}.Start(t, Register)
	for _, r := range requests {
		if err := p.Send(t, r); !apierrors.IsNotFound(err) || err.Error() != `namespaces "ns" not found` {
			t.Errorf("got %v", err)
		}
	}
	if err := p.Send(t, admissiontest.Request{Object: admissiontest.Namespace("ns")}); err != nil {
		t.Errorf("a namespace: %v", err)
	}
	p = admissiontest.Server{Objects: []runtime.Object{admissiontest.Namespace("ns")}}.Start(t, Register)
	for _, r := range requests {
		if err := p.Send(t, r); err != nil {
			t.Error(err)
		}
	}
}

func TestANamespaceThatTheInformerHasNotSeenExists(t *testing.T) {
	p := admissiontest.Server{}.Start(t, Register)
	p.Client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, admissiontest.Namespace("ns"), nil
	})
	if err := p.Send(t, admissiontest.Request{Object: admissiontest.Pod()}); err != nil {
		t.Error(err)
	}
}
