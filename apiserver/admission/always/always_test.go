package always

import (
	"testing"

	"k8s.io/apiserver/pkg/admission"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

func TestAdmit(t *testing.T) {
	if err := (admissiontest.Server{}).Start(t, RegisterAdmit).Send(t, admissiontest.Request{Object: admissiontest.Pod()}); err != nil {
		t.Error(err)
	}
}

func TestDeny(t *testing.T) {
	p := admissiontest.Server{}.Start(t, RegisterDeny)
	for _, r := range []admissiontest.Request{{Object: admissiontest.Pod()}, {Object: admissiontest.Pod(), Old: admissiontest.Pod()}, {Old: admissiontest.Pod()}} {
		if err := p.Send(t, r); err == nil || err.Error() != `pods "pod" is forbidden: admission control is denying all modifications` {
			t.Errorf("got %v", err)
		}
	}
	before, ok := p.Interface.(admission.MutationInterface)
	if !ok || before.Admit(t.Context(), admissiontest.Request{Object: admissiontest.Pod()}.Attributes(t), nil) == nil {
		t.Error("it does not refuse objects before they are validated")
	}
}
