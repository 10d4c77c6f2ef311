package apiclient

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"svc.dev/svc/internal/clientcert/clientcerttest"
)

func TestRateLimitAppliesToAllButHeartbeatsAndEvents(t *testing.T) {
	for _, limited := range []bool{false, true} {
		c := &rest.Config{Host: "http://localhost"}
		if limited {
			c.QPS, c.Burst = 5, 7
		}
		a, err := New(c, clock.RealClock{})
		if err != nil {
			t.Fatal(err)
		}
		if has := a.Core.GetRateLimiter() != nil; has != limited {
			t.Errorf("the limit of core is there: %t, want %t", has, limited)
		}
		if a.Heartbeats.GetRateLimiter() != nil || a.Coordination.GetRateLimiter() != nil {
			t.Error("heartbeats are limited")
		}
	}
}

func TestTheMapperHasTheKindsThatTheAgentUses(t *testing.T) {
	m := mapper()
	for _, kind := range []string{"Node", "Secret", "PersistentVolumeClaim", "CSIDriver", "CSINode", "VolumeAttachment"} {
		if _, err := m.KindFor(schema.GroupVersionResource{Resource: strings.ToLower(kind) + "s"}); err != nil {
			t.Error(err)
		}
	}
}

func TestContentTypeOfProtobufIsKubernetesOwn(t *testing.T) {
	for named, want := range map[string]string{
		"": "application/vnd.kubernetes.protobuf", "application/vnd.svc.protobuf": "application/vnd.kubernetes.protobuf",
		"application/vnd.kubernetes.protobuf": "application/vnd.kubernetes.protobuf", "application/json": "application/json",
	} {
		if got := wireType(named); got != want {
			t.Errorf("%q goes as %q, want %q", named, got, want)
		}
	}
}

func TestRequestsOfTheAgentSurviveTheRenewalOfItsCertificate(t *testing.T) {
	s := clientcerttest.New(t, nil)
	a, err := New(s.Client(), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	s.Check(t, a.Core.(*rest.RESTClient).Client.Transport)
}
