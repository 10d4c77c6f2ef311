package controllers

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/internal/suggest"
)

// Pick returns the controllers that the values of --controllers enable: "*" enables
// every controller that is included and, for a fleet behind a host, not standalone,
// "name" enables one, and "-name" disables one, in any order. An unknown name is an
// error.
func Pick(all []controller.Controller, values []string, fleet bool, included func(controller.Controller) bool) ([]controller.Controller, error) {
	star := slices.Contains(values, "*")
	named := map[string]bool{} // by name, whether it is enabled
	for _, value := range values {
		name, out := strings.CutPrefix(value, "-")
		if value == "*" || value == "" {
			continue
		}
		i := slices.IndexFunc(all, func(c controller.Controller) bool {
			return c.Name == name || slices.Contains(c.Aliases, name)
		})
		if i < 0 {
			return nil, unknown(all, name)
		}
		if in, ok := named[all[i].Name]; ok && in == out {
			return nil, fmt.Errorf("--controllers: %q is both enabled and disabled: name it once", all[i].Name)
		}
		named[all[i].Name] = !out
	}
	var picked []controller.Controller
	for _, c := range all {
		in, ok := named[c.Name]
		if !ok {
			in = star && included(c) && !(fleet && c.Standalone)
		}
		if in {
			picked = append(picked, c)
		}
	}
	return picked, nil
}

// Included reports whether "*" enables a controller whose feature gate has not been set.
func Included(c controller.Controller) bool { return !c.OnDemand }

// elsewhere are the controllers of kube-controller-manager that are not here;
// docs/controllers.md has the reasons.
var elsewhere = sets.New(
	"service", "service-lb-controller", "route", "node-route-controller", "cloud-node-lifecycle", "cloud-node-lifecycle-controller",
	"storage-version-gc", "storageversion-garbage-collector-controller", "selinux-warning-controller",
)

// unknown returns the error for a name that no controller has.
func unknown(all []controller.Controller, name string) error {
	if elsewhere.Has(name) {
		return fmt.Errorf("--controllers: %q is a controller of kube-controller-manager that svc does not have: leave it out", name)
	}
	var known []string
	for _, c := range all {
		known = append(append(known, c.Name), c.Aliases...)
	}
	if similar := suggest.Closest(name, known); similar != "" {
		return fmt.Errorf("--controllers: there is no controller %q: did you mean %q?", name, similar)
	}
	return fmt.Errorf("--controllers: there is no controller %q: choose from *, %s", name, strings.Join(names(all), ", "))
}

// names returns the sorted names of the controllers.
func names(all []controller.Controller) []string {
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return names
}
