package main

import (
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/apis"
	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/groupdomain"
	"svc.dev/svc/apiserver/registration"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/controllers"
	"svc.dev/svc/internal/fleetaddress"
)

// The names of config/aggregated.
const (
	groupDomain = "svc.dev"
	fleetName   = "default"
)

// fleetRelease is the release that the fleet of config/aggregated serves (-release).
var fleetRelease = release.Default

// apiServices returns the manifest of the APIServices of all served group versions.
func apiServices() (string, error) {
	groups, err := registration.New(fleetRelease, groupDomain)
	if err != nil {
		return "", err
	}
	var all []any
	for _, s := range groups.APIServices(types.NamespacedName{Namespace: "svc-system", Name: "svc-apiserver"}) {
		all = append(all, s)
	}
	return manifest("from the served group versions", all...)
}

// registrar returns the manifest of the role by which the API servers write the
// authorities into their APIServices, and no others.
func registrar() (string, error) {
	groups, err := registration.New(fleetRelease, groupDomain)
	if err != nil {
		return "", err
	}
	writable := rbacv1.PolicyRule{APIGroups: []string{apiregistrationv1.GroupName}, Resources: []string{"apiservices"}, Verbs: []string{"patch"}}
	for _, s := range groups.APIServices(types.NamespacedName{}) {
		writable.ResourceNames = append(writable.ResourceNames, s.Name)
	}
	return manifest("from the served group versions", clusterRole("svc-apiserver-registrar",
		rbacv1.PolicyRule{APIGroups: []string{apiregistrationv1.GroupName}, Resources: []string{"apiservices"}, Verbs: []string{"list", "watch"}},
		writable))
}

// fleetRole returns the manifest of the role of the controllers in a host: their
// permissions in the names of the domain, and the fleet's address.
func fleetRole() (string, error) {
	groups, err := registration.New(fleetRelease, groupDomain)
	if err != nil {
		return "", err
	}
	rules, err := rulesInFleet()
	if err != nil {
		return "", err
	}
	var all []string
	for _, gv := range groups.Versions {
		if gv.Group != groups.Names.FleetGroup() {
			all = append(all, gv.Group)
		}
	}
	all = slices.Compact(all)
	rules = append(inDomain(rules, groups.Names, all), toAddress(groups.Names))
	return manifest("from the controllers' declarations", clusterRole("svc-controller-manager-fleet", rules...))
}

// rulesInFleet returns what the controllers that run in a fleet do, in Kubernetes' names.
func rulesInFleet() ([]rbacv1.PolicyRule, error) {
	rules := controllers.OwnRules()
	for _, c := range controllers.All() {
		if c.Standalone {
			continue
		}
		its, err := controllers.RulesOf(c)
		if err != nil {
			return nil, err
		}
		rules = append(rules, its...)
	}
	return merged(rules), nil
}

// clusterRules returns the manifest of that part of the role of the controllers which
// bindings in namespaces cannot grant: what they do with kinds that are in no namespace,
// what is asked for in all namespaces, and the fleet's address.
func clusterRules() (string, error) {
	names, err := groupdomain.New(groupDomain)
	if err != nil {
		return "", err
	}
	rules, err := rulesInFleet()
	if err != nil {
		return "", err
	}
	namespaced := map[schema.GroupResource]bool{{Resource: "namespaces"}: false}
	for _, kind := range apis.Kinds() {
		namespaced[schema.GroupResource{Group: kind.Hub.Group, Resource: kind.Name}] = kind.Namespaced
	}
	rules = slices.DeleteFunc(rules, func(rule rbacv1.PolicyRule) bool {
		resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
		if rule.APIGroups[0] == resourcev1.GroupName && subresource == resourcev1.SubresourceBinding {
			return false // without the right to the status, which is one in namespaces, it has no effect
		}
		inNamespaces, known := namespaced[schema.GroupResource{Group: rule.APIGroups[0], Resource: resource}]
		return inNamespaces || !known
	})
	rules = append(inDomain(rules, names, nil), toAddress(names))
	return manifest("from the controllers' declarations", clusterRole("svc-controller-manager-cluster", rules...))
}

// machineRole returns the manifest of the role of the machines of the fleet and of what
// grants it to those that join by a token of the host: Kubernetes' roles of nodes, of the
// newest release, and the rules of network policies, in the names of the domain but for
// requests of certificates of machines, which are the host's, and the fleet's address. A
// token lets a machine read the release of the fleet there, which it reports, and no more.
func machineRole() (string, error) {
	names, err := groupdomain.New(groupDomain)
	if err != nil {
		return "", err
	}
	defaults, err := authorization.DefaultRoles(release.Newest, func(string) bool { return true })
	if err != nil {
		return "", err
	}
	rules := authorization.OfNetworkPolicies()
	for _, role := range defaults {
		if role.Name == "system:node" || role.Name == "system:node-proxier" {
			rules = append(rules, role.Rules...)
		}
	}
	rules = inDomain(merged(rules), names, nil)
	for i, rule := range rules {
		if rule.APIGroups[0] == names.Public(certificatesv1.GroupName) && slices.Equal(rule.Resources, []string{"certificatesigningrequests"}) {
			rules[i].APIGroups = []string{certificatesv1.GroupName}
		}
	}
	return manifest("from Kubernetes' roles of nodes", clusterRole("svc-machine", append(rules, toAddress(names))...),
		groupBinding("svc-machine", fleetaddress.MachineGroup(groupDomain), "svc-machine"),
		groupBinding("svc-machine-bootstrapper", fleetaddress.BootstrapGroup, "system:node-bootstrapper"),
		clusterRole("svc-machine-release", atAddress(names, "get")),
		groupBinding("svc-machine-release", fleetaddress.BootstrapGroup, "svc-machine-release"))
}

// groupBinding is the binding of a group to a role of the host.
func groupBinding(name, group, role string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}
}

// toAddress is the right to the fleet's own address.
func toAddress(names *groupdomain.Names) rbacv1.PolicyRule {
	return atAddress(names, "create", "delete", "get", "patch", "update")
}

// atAddress is the right to requests with some verbs at the fleet's own address.
func atAddress(names *groupdomain.Names, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{names.FleetGroup()}, Resources: []string{fleetaddress.Resource + "/proxy"}, ResourceNames: []string{fleetName}, Verbs: verbs,
	}
}

// inDomain returns rules about the same resources in the names of a domain. A rule about
// all groups becomes one about those of the domain: the host has others.
func inDomain(rules []rbacv1.PolicyRule, names *groupdomain.Names, all []string) []rbacv1.PolicyRule {
	var translated []rbacv1.PolicyRule
	for _, rule := range rules {
		var groups []string
		for _, group := range rule.APIGroups {
			switch {
			case group == rbacv1.APIGroupAll:
				groups = append(groups, all...)
			case len(rule.Resources) == 1 && names.OfHost(group, strings.Split(rule.Resources[0], "/")[0]):
				groups = append(groups, group)
			default:
				groups = append(groups, names.Public(group))
			}
		}
		rule.APIGroups = groups
		translated = append(translated, rule)
	}
	return translated
}

func clusterRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      rules,
	}
}

// manifest returns a file with the objects.
func manifest(source string, objects ...any) (string, error) {
	var b strings.Builder
	b.WriteString("# Generated " + source + " by make generate; do not edit.\n")
	for i, object := range objects {
		if i > 0 {
			b.WriteString("---\n")
		}
		content, err := yaml.Marshal(object)
		if err != nil {
			return "", err
		}
		// The server writes the status.
		b.WriteString(strings.TrimSuffix(string(content), "status: {}\n"))
	}
	return b.String(), nil
}
