package externalips

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

func TestServicesGetNoNewExternalIPs(t *testing.T) {
	service := func(ips ...string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}, Spec: corev1.ServiceSpec{ExternalIPs: ips}}
	}
	const denied = `services "s" is forbidden: Use of external IPs is denied by admission control`
	for _, test := range []struct {
		rule string
		admissiontest.Request
		err string
	}{
		{"none", admissiontest.Request{Object: service()}, ""},
		{"a new one", admissiontest.Request{Object: service("192.0.2.1")}, denied},
		{"one that the service has", admissiontest.Request{Object: service("192.0.2.1"), Old: service("192.0.2.1", "192.0.2.2")}, ""},
		{"another one", admissiontest.Request{Object: service("192.0.2.1", "192.0.2.3"), Old: service("192.0.2.1")}, denied},
	} {
		t.Run(test.rule, func(t *testing.T) {
			err := admissiontest.Server{}.Start(t, Register).Send(t, test.Request)
			if test.err == "" && err != nil || test.err != "" && (err == nil || err.Error() != test.err) {
				t.Errorf("got %v, want %s", err, test.err)
			}
		})
	}
}
