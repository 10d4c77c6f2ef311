package authorization

import (
	_ "embed" // the table of the default roles
	"errors"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/apiserver/release"
)

// policy is the table of the default roles; its head describes the format.
//
//go:embed policy.txt
var policy string

// DefaultRole is a role that the server creates in the mode RBAC, with its binding.
type DefaultRole struct {
	Name string
	// Namespace is that of a Role. It is empty for a ClusterRole.
	Namespace string
	// Labels are the labels by which other roles aggregate the role.
	Labels map[string]string
	Rules  []rbacv1.PolicyRule
	// Aggregation selects the roles whose rules the controller
	// clusterrole-aggregation copies to the role. It may be nil.
	Aggregation *rbacv1.AggregationRule
	// Binding is the name of the role's binding, empty if there is none.
	Binding  string
	Subjects []rbacv1.Subject
}

// DefaultRoles returns the default roles of a release of Kubernetes whose feature gates are
// on as on reports. An error is one of the table.
func DefaultRoles(of release.Release, on func(gate string) bool) ([]DefaultRole, error) {
	return parsePolicy(policy, of, on)
}

func parsePolicy(table string, of release.Release, on func(gate string) bool) ([]DefaultRole, error) {
	var roles []DefaultRole
	absent := false // reports whether the release lacks the role of this line
	for i, line := range strings.Split(table, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		words, exists, err := existsIn(words, of, on)
		isRole := words[0] == "role"
		if isRole {
			absent = !exists
		}
		switch {
		case err != nil || absent:
		case isRole:
			roles, err = appendRole(roles, words[1:])
		case len(roles) == 0:
			err = errors.New("a line before the first role")
		case exists:
			err = roles[len(roles)-1].add(words)
		}
		if err != nil {
			return nil, fmt.Errorf("policy.txt:%d: %w", i+1, err)
		}
	}
	return roles, nil
}

// existsIn returns the words of a line without the release or the gate at its end, and
// reports whether the release has it.
func existsIn(words []string, of release.Release, on func(gate string) bool) (rest []string, exists bool, err error) {
	last := len(words) - 2
	switch {
	case last < 1:
		return words, true, nil
	case words[last] == "gate":
		return words[:last], on(words[last+1]), nil
	case words[last] != "since" && words[last] != "before":
		return words, true, nil
	}
	limit, err := release.Parse(words[last+1])
	return words[:last], of.Before(limit) == (words[last] == "before"), err
}

func appendRole(roles []DefaultRole, words []string) ([]DefaultRole, error) {
	switch {
	case len(words) == 1:
		return append(roles, DefaultRole{Name: words[0]}), nil
	case len(words) == 3 && words[1] == "in":
		return append(roles, DefaultRole{Name: words[0], Namespace: words[2]}), nil
	}
	return nil, errors.New("invalid role: must be NAME [in NAMESPACE]")
}

// add adds what a line of the table says of the role.
func (r *DefaultRole) add(words []string) error {
	const labelPrefix = "rbac.authorization.k8s.io/"
	switch {
	case words[0] == "record-events" && len(words) == 1:
		r.Rules = append(r.Rules, rbacv1.PolicyRule{
			Verbs: []string{"create", "patch", "update"}, APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"},
		})
	case words[0] == "label" && len(words) == 2:
		r.Labels = map[string]string{labelPrefix + words[1]: "true"}
	case words[0] == "aggregate" && len(words) == 2:
		r.Aggregation = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{
			{MatchLabels: map[string]string{labelPrefix + words[1]: "true"}},
		}}
	case words[0] == "bind":
		return r.bind(words[1:])
	case len(words) == 3 && words[1] == "path":
		r.Rules = append(r.Rules, rbacv1.PolicyRule{Verbs: list(words[0]), NonResourceURLs: list(words[2])})
	case len(words) == 3:
		r.Rules = append(r.Rules, rbacv1.PolicyRule{Verbs: list(words[0]), APIGroups: list(words[1]), Resources: list(words[2])})
	case len(words) == 5 && words[3] == "named":
		r.Rules = append(r.Rules, rbacv1.PolicyRule{
			Verbs: list(words[0]), APIGroups: list(words[1]), Resources: list(words[2]), ResourceNames: list(words[4]),
		})
	default:
		return fmt.Errorf("invalid line of role %s: %q", r.Name, words)
	}
	return nil
}

// bind adds a subject of the role's binding.
func (r *DefaultRole) bind(words []string) error {
	r.Binding = r.Name
	if len(words) == 4 && words[2] == "as" {
		r.Binding, words = words[3], words[:2]
	}
	if len(words) == 1 && words[0] == "nothing" {
		return nil
	}
	if len(words) != 2 {
		return fmt.Errorf("invalid subject of role %s: %q", r.Name, words)
	}
	subject := rbacv1.Subject{APIGroup: rbacv1.GroupName, Name: words[1]}
	switch words[0] {
	case "group":
		subject.Kind = rbacv1.GroupKind
	case "user":
		subject.Kind = rbacv1.UserKind
	case "account":
		subject.Kind, subject.APIGroup, subject.Namespace = rbacv1.ServiceAccountKind, "", metav1.NamespaceSystem
	default:
		return fmt.Errorf("invalid subject of role %s: %q: must be a group, a user or an account", r.Name, words[0])
	}
	r.Subjects = append(r.Subjects, subject)
	return nil
}

// list returns the words of a list that is separated by commas, with its
// abbreviations written out.
func list(words string) []string {
	var full []string
	for _, word := range strings.Split(words, ",") {
		switch word {
		case "read":
			full = append(full, "get", "list", "watch")
		case "write":
			full = append(full, "create", "delete", "deletecollection", "patch", "update")
		case "core":
			full = append(full, "")
		default:
			full = append(full, word)
		}
	}
	return full
}
