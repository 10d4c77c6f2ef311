package apiserver

import (
	"strings"
	"testing"

	"svc.dev/svc/apis"
)

func TestAnOverrideOfWhatIsNotStoredIsRefused(t *testing.T) {
	for entry, want := range map[string]string{
		"/events":                            "",
		"apps/deployments":                   "",
		"coordination.k8s.io/leases":         "",
		"example.com/widgets":                "",
		"networking.k8s.io/gateways":         "",
		"apiregistration.k8s.io/apiservices": "",
		"events.k8s.io/events":               `"events.k8s.io/events": its objects are stored as /events; write that`,
		"/event":                             "did you mean /events?",
		"coordination.k8s.io/lease":          "did you mean coordination.k8s.io/leases?",
		"/leases":                            "did you mean coordination.k8s.io/leases?",
		"/deployments":                       "did you mean apps/deployments?",
		"/widgets":                           "write GROUP/RESOURCE as /events or apps/deployments",
		"/bindings":                          "no objects are stored under this name",
	} {
		err := checkOverrides([]string{entry + "#http://127.0.0.1:2479"}, apis.Kinds())
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", entry, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "--etcd-servers-overrides: ")):
			t.Errorf("%s: %v, want %q", entry, err, want)
		}
	}
}
