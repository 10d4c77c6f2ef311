package eventratelimit

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	clocktesting "k8s.io/utils/clock/testing"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

const header = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\n"

func event(namespace, source string) *corev1.Event {
	return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "e"}, Source: corev1.EventSource{Component: source}}
}

func TestEventsAreLimitedByKey(t *testing.T) {
	as := func(name string) user.Info { return &user.DefaultInfo{Name: name} }
	first := admissiontest.Request{Object: event("ns", "s"), User: as("alice")}
	otherNamespace := admissiontest.Request{Object: event("other", "s"), User: as("alice")}
	otherUser := admissiontest.Request{Object: event("ns", "s"), User: as("bob")}
	otherSource := admissiontest.Request{Object: event("ns", "t"), User: as("alice")}
	for _, test := range []struct {
		kind string
		// free is a request that has another key than the first one, limited one that has the same.
		free, limited *admissiontest.Request
		err           string
	}{
		{"Server", nil, &otherNamespace, "limit reached on type Server for key "},
		{"Namespace", &otherNamespace, &otherUser, "limit reached on type Namespace for key ns"},
		{"User", &otherUser, &otherSource, "limit reached on type User for key alice"},
		{"SourceAndObject", &otherSource, &otherUser, "limit reached on type SourceAndObject for key s"},
	} {
		t.Run(test.kind, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Unix(0, 0))
			made, err := newPlugin(strings.NewReader(header+"limits: [{type: "+test.kind+", qps: 1, burst: 2}]"), clock)
			if err != nil {
				t.Fatal(err)
			}
			p := &admissiontest.Plugin{Interface: made}
			for range 2 {
				if err := p.Send(t, first); err != nil {
					t.Fatalf("within the burst: %v", err)
				}
			}
			if err := p.Send(t, *test.limited); !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), test.err) {
				t.Errorf("above the burst: %v, want %s", err, test.err)
			}
			if test.free != nil {
				if err := p.Send(t, *test.free); err != nil {
					t.Errorf("another key: %v", err)
				}
			}
			dry := first
			dry.DryRun = true
			if err := p.Send(t, dry); err != nil {
				t.Errorf("a dry run: %v", err)
			}
			if err := p.Send(t, admissiontest.Request{Object: admissiontest.Pod()}); err != nil {
				t.Errorf("another kind: %v", err)
			}
			clock.Step(time.Second)
			if err := p.Send(t, first); err != nil {
				t.Errorf("a second later: %v", err)
			}
		})
	}
}

func TestAnInvalidConfigurationIsNamed(t *testing.T) {
	for config, want := range map[string]string{
		"":                              "limits: Invalid value",
		header:                          "must not be empty",
		"kind: Other\napiVersion: v1\n": "unsupported kind Other",
		header + "limits: [{type: Pod, qps: 1, burst: 1}]":                 `limits[0].type: Unsupported value: "Pod"`,
		header + "limits: [{type: User}]":                                  "limits[0].burst: Invalid value: 0: must be positive",
		header + "limits: [{type: User, qps: 1, burst: 1, cacheSize: -1}]": "must not be negative",
		header + "limits: [{type: User, qps: 1, burst: 1, cache: 1}]":      `unknown field "cache"`,
	} {
		s := admissiontest.Server{}
		if config != "" {
			s.Config = strings.NewReader(config)
		}
		if _, err := s.TryStart(t, Register); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "configuration of EventRateLimit") {
			t.Errorf("%q: %v, want %s", config, err, want)
		}
	}
}
