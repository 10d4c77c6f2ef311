package controllers

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

func TestReadKindsMayBeListedAndWatched(t *testing.T) {
	rules, err := Rules()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"get", "list", "watch"}
	if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return slices.Equal(r.APIGroups, []string{""}) && slices.Equal(r.Resources, []string{"namespaces"}) && slices.Equal(r.Verbs, want)
	}) {
		t.Errorf("namespaces cannot be read: %v", rules)
	}
}

// TestPermissionsNameTheirVerbs checks that no controller has verbs or groups by
// wildcard or by mistake.
func TestPermissionsNameTheirVerbs(t *testing.T) {
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	for _, c := range All() {
		for _, r := range c.Permissions {
			if len(r.APIGroups) == 0 || len(r.Resources) == 0 || len(r.Verbs) == 0 || len(r.NonResourceURLs) > 0 {
				t.Errorf("%s: %v is not a rule about resources", c.Name, r)
			}
			for _, verb := range r.Verbs {
				if verb == "escalate" && c.Name == "clusterroleaggregation" {
					continue // it gives roles rules that it does not hold
				}
				if verb == "approve" && c.Name == "csrapproving" || verb == "sign" && c.Name == "csrsigning" || verb == "attest" && c.Name == "kube-apiserver-serving-clustertrustbundle-publisher" {
					continue // about signers, by name
				}
				if !slices.Contains(verbs, verb) {
					t.Errorf("%s: %q is not a verb that a controller needs", c.Name, verb)
				}
			}
			for _, group := range r.APIGroups {
				if group != "*" && group != "" && group != strings.ToLower(group) {
					t.Errorf("%s: %q is not a group", c.Name, group)
				}
			}
		}
	}
}
