package always

import (
	"testing"

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
}
