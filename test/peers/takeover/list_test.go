package takeover

import (
	"slices"
	"strings"
	"testing"

	manager "svc.dev/svc/controllers"
	"svc.dev/svc/controllers/controller"
)

// exempt are the controllers that Kubernetes' programs do not take over, with the reason.
var exempt = map[string]string{
	"hostloadbalancer":                     "Kubernetes has no controller that publishes services at the addresses of nodes",
	"localpathprovisioner":                 "Kubernetes has no controller that provisions directories of nodes",
	"csrcleaner":                           "that of kube-controller-manager acts once an hour, the first time before it has read the requests",
	"legacy-service-account-token-cleaner": "it acts on tokens that were created a day ago or earlier, and the API server sets that time",
	"podgroupprotection":                   "Kubernetes 1.36 has PodGroups only in v1alpha2, which svc does not serve",
	"podcertificaterequestcleaner":         "it acts on requests that were created 15 minutes ago, and the API server sets that time",
}

// TestTheListHasEachController fails for a controller of the manager that is neither taken
// over nor exempt, and for names that are not those of a controller.
func TestTheListHasEachController(t *testing.T) {
	all := manager.All()
	named := func(name string) int {
		return slices.IndexFunc(all, func(c controller.Controller) bool { return c.Name == name || slices.Contains(c.Aliases, name) })
	}
	isTaken := map[string]bool{}
	for _, c := range controllers {
		of := strings.Split(c.kube, ",")
		for i, name := range strings.Split(c.svc, ",") {
			at := named(name)
			if at < 0 || i >= len(of) || named(of[i]) != at {
				t.Errorf("%s and %s are not names of the same controllers", c.svc, c.kube)
				continue
			}
			isTaken[all[at].Name] = true
		}
	}
	for _, c := range all {
		if _, isExempt := exempt[c.Name]; isExempt == isTaken[c.Name] {
			t.Errorf("%s is taken over: %v, and exempt: %v; one of both is right", c.Name, isTaken[c.Name], isExempt)
		}
	}
	for name := range exempt {
		if named(name) < 0 {
			t.Errorf("there is no controller %s", name)
		}
	}
}
