package clusterroleaggregation

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// role makes a role from a line: NAME [+LABEL...] [<LABEL...] [VERB...]; + are its
// labels, < the labels of the roles that it aggregates, verbs are its rules.
func role(line string) rbacv1.ClusterRole {
	words := strings.Fields(line)
	made := rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: words[0], Labels: map[string]string{}}}
	for _, word := range words[1:] {
		switch label := word[1:]; word[0] {
		case '+':
			made.Labels[label] = "true"
		case '<':
			if made.AggregationRule == nil {
				made.AggregationRule = &rbacv1.AggregationRule{}
			}
			made.AggregationRule.ClusterRoleSelectors = append(made.AggregationRule.ClusterRoleSelectors, metav1.LabelSelector{MatchLabels: map[string]string{label: "true"}})
		default:
			made.Rules = append(made.Rules, rbacv1.PolicyRule{Verbs: []string{word}, APIGroups: []string{""}, Resources: []string{"pods"}})
		}
	}
	return made
}

// In a ring of roles, the order of each role's rules follows from that of the next one.
func TestASecondSyncOfRolesThatAggregateEachOtherChangesNothing(t *testing.T) {
	var roles []rbacv1.ClusterRole
	for _, line := range []string{
		"a <b <x +a", "b <c <y +b patch", "c <a <z +c", // the ring
		"x +x get watch", "y +y list get", "z +z create", "view <a <x delete",
	} {
		roles = append(roles, role(line))
	}
	changes := decide(roles)
	if len(changes) != 4 {
		t.Fatalf("%d changes: %+v", len(changes), changes)
	}
	for _, c := range changes {
		if want := 4; len(c.rules) != want {
			t.Errorf("%s has %d rules, want %d: %+v", c.role.Name, len(c.rules), want, c.rules)
		}
		i := slices.IndexFunc(roles, func(r rbacv1.ClusterRole) bool { return r.Name == c.role.Name })
		roles[i].Rules = c.rules
	}
	if changes := decide(roles); len(changes) > 0 {
		t.Errorf("changes again: %+v", changes)
	}
}

func TestDecide(t *testing.T) {
	for _, test := range []struct {
		rule  string
		roles []string
		want  []string // NAME: VERB...
	}{
		{"a role gets the rules of the roles that it selects", []string{"view <v", "b +v list", "a +v get", "c +w watch"}, []string{"view: get list"}},
		{"a role that has them is not changed", []string{"view <v get list", "a +v get", "b +v list"}, nil},
		{"rules that it no longer aggregates are removed", []string{"view <v get list", "a +v get"}, []string{"view: get"}},
		{"its own rules are replaced", []string{"view <v patch", "a +v get"}, []string{"view: get"}},
		{"a rule of two roles is there once", []string{"view <v", "a +v get", "b +v get"}, []string{"view: get"}},
		{"selectors count in their order", []string{"all <w <v", "a +v get", "b +w list"}, []string{"all: list get"}},
		{"it does not aggregate itself", []string{"view <v +v get"}, []string{"view:"}},
		{"a chain is followed to its end", []string{"admin <a", "edit <e +a", "view <v +e", "x +v get", "y +e create"}, []string{"admin: get create", "edit: get create", "view: get"}},
		{"roles that aggregate each other", []string{"a <x +y", "b <y +x", "c +x get"}, []string{"a: get", "b: get"}},
		{"roles that aggregate each other keep no rule that no other role has", []string{"a <x +y", "b <y +x get"}, []string{"b:"}},
		{"a rule that is stored twice is there once", []string{"view <v get get", "a +v get"}, []string{"view: get"}},
		{"no selector selects nothing", []string{"a get"}, nil},
	} {
		t.Run(test.rule, func(t *testing.T) {
			var roles []rbacv1.ClusterRole
			for _, line := range test.roles {
				roles = append(roles, role(line))
			}
			var got []string
			for _, c := range decide(roles) {
				text := c.role.Name + ":"
				for _, rule := range c.rules {
					text += " " + rule.Verbs[0]
				}
				got = append(got, text)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
