package config_test

import (
	"errors"
	"flag"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/embed"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-helpers/auth/rbac/validation"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	kustomize "sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"

	"svc.dev/svc/apis"
	"svc.dev/svc/apiserver/host"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/registration"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/controllers"
	"svc.dev/svc/controllers/healthserver"
)

// command returns the program that a container runs, and its flags as it gets them.
func command(t *testing.T, m *manifests, c corev1.Container) (program string, flags []string) {
	t.Helper()
	replace := []string{"$(NAMESPACE)", "svc-system"}
	for _, variable := range c.Env {
		if from := variable.ValueFrom.ConfigMapKeyRef; from != nil {
			for _, config := range objects[*corev1.ConfigMap](m) {
				if config.Name == from.Name {
					replace = append(replace, "$("+variable.Name+")", config.Data[from.Key])
				}
			}
		}
		if variable.Name == "POD_NAME" {
			replace = append(replace, "$(POD_NAME)", "svc-etcd-0")
		}
	}
	for _, arg := range slices.Concat(c.Command, c.Args) {
		flags = append(flags, strings.NewReplacer(replace...).Replace(arg))
	}
	for _, f := range flags {
		if strings.Contains(f, "$(") {
			t.Errorf("%s: no variable for %s", c.Name, f)
		}
	}
	return flags[0], flags[1:]
}

func parse(t *testing.T, sets cliflag.NamedFlagSets, args []string) {
	t.Helper()
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, set := range sets.FlagSets {
		all.AddFlagSet(set)
	}
	if err := all.Parse(args); err != nil {
		t.Errorf("%v: %v", args, err)
	}
}

func programsAcceptTheirFlags(t *testing.T, m *manifests) {
	for _, w := range workloads(m) {
		program, args := command(t, m, w.template.Spec.Containers[0])
		switch program {
		case "apiserver":
			o := options.New()
			parse(t, o.Flags(), args)
			for _, err := range o.Validate() {
				// The files of mounted Secrets are not on this machine.
				if !strings.Contains(err.Error(), "no such file") {
					t.Error(err)
				}
			}
		case "controller-manager":
			o, port := controllers.NewOptions(), healthserver.NewOptions()
			var sets cliflag.NamedFlagSets
			o.AddFlags(&sets)
			port.AddFlags(&sets)
			sets.FlagSet("API server").String("svcconfig", "", "")
			parse(t, sets, args)
			if err := errors.Join(append(o.Validate(), port.Validate()...)...); err != nil {
				t.Error(err)
			}
		case "/usr/local/bin/etcd":
			flags := flag.NewFlagSet("etcd", flag.ContinueOnError)
			embed.NewConfig().AddFlags(flags)
			if err := flags.Parse(args); err != nil {
				t.Errorf("%v: %v", args, err)
			}
		default:
			t.Errorf("%s: unknown program %s", w.GetName(), program)
		}
	}
}

// threshold is the size of a database at which the alert SvcStorageFillsUp fires.
var threshold = regexp.MustCompile(`apiserver_storage_size_bytes\{\}\) > (\S+)`)

// theAlertOfAFullDatabaseFiresBelowTheQuota: at the quota etcd refuses writes.
func theAlertOfAFullDatabaseFiresBelowTheQuota(t *testing.T, m *manifests) {
	content, err := os.ReadFile("components/monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	fires, err := strconv.ParseFloat(threshold.FindStringSubmatch(string(content))[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range objects[*appsv1.StatefulSet](m) {
		_, args := command(t, m, s.Spec.Template.Spec.Containers[0])
		flags, etcd := flag.NewFlagSet("etcd", flag.ContinueOnError), embed.NewConfig()
		etcd.AddFlags(flags)
		if err := flags.Parse(args); err != nil {
			t.Fatal(err)
		}
		if limit := 0.8 * float64(etcd.QuotaBackendBytes); fires > limit {
			t.Errorf("%s: the alert fires at %g bytes, want at most %g", s.Name, fires, limit)
		}
	}
}

func TestEveryServedVersionIsRegistered(t *testing.T) {
	groups, err := registration.New(release.Default, "svc.dev")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, gv := range groups.Versions {
		want = append(want, gv.Version+"."+gv.Group)
	}
	for _, s := range objects[*apiregistrationv1.APIService](render(t, overlay{"aggregated", nil})) {
		got = append(got, s.Name)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Errorf("registered %v, served %v; run make generate", got, want)
	}
}

// fleetRole is the role of the controllers of config/aggregated.
func fleetRole(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	for _, role := range objects[*rbacv1.ClusterRole](render(t, overlay{"aggregated", nil})) {
		if role.Name == "svc-controller-manager-fleet" {
			return role.Rules
		}
	}
	t.Fatal("no role")
	return nil
}

func TestControllersMayDoWhatTheyDeclareInTheNamesOfTheDomain(t *testing.T) {
	groups, err := registration.New(release.Default, "svc.dev")
	if err != nil {
		t.Fatal(err)
	}
	role := fleetRole(t)
	running, err := controllers.Pick(controllers.All(), []string{"*"}, true, controllers.Included)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range running {
		rules, err := controllers.RulesOf(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, rule := range rules {
			if rule.APIGroups[0] == rbacv1.APIGroupAll {
				continue // all groups of the host are not those of the domain
			}
			if !groups.Names.OfHost(rule.APIGroups[0], rule.Resources[0]) {
				rule.APIGroups = []string{groups.Names.Public(rule.APIGroups[0])}
			}
			if ok, missing := validation.Covers(role, []rbacv1.PolicyRule{rule}); !ok {
				t.Errorf("%s lacks %v", c.Name, missing)
			}
		}
	}
	if len(running) < 10 {
		t.Errorf("%d controllers run", len(running))
	}
}

// A binding in a namespace grants only what is in namespaces.
func TestControllersOfSomeNamespacesHaveTheSameRightsInThese(t *testing.T) {
	m := render(t, overlay{"aggregated", []string{"namespace-scoped"}})
	var inNamespaces, always []rbacv1.PolicyRule
	for _, role := range objects[*rbacv1.ClusterRole](m) {
		switch role.Name {
		case "svc-controller-manager-fleet":
			inNamespaces = role.Rules
		case "svc-controller-manager-cluster":
			always = role.Rules
		}
	}
	if ok, more := validation.Covers(inNamespaces, always); !ok {
		t.Errorf("the part has more than the whole: %v", more)
	}
	// The API server asks for this one in all namespaces, besides that for the status.
	const binding = "resourceclaims/binding"
	if ok, missing := validation.Covers(always, []rbacv1.PolicyRule{{APIGroups: []string{"resource.svc.dev"}, Resources: []string{binding}, Verbs: []string{"patch"}}}); !ok {
		t.Errorf("lack %v in all namespaces", missing)
	}
	namespaced := map[string]bool{}
	for _, kind := range apis.Kinds() {
		namespaced[kind.Name] = kind.Namespaced
	}
	for _, rule := range inNamespaces {
		resource, _, _ := strings.Cut(rule.Resources[0], "/")
		if inNamespace, known := namespaced[resource]; !known || inNamespace {
			continue
		}
		if ok, missing := validation.Covers(always, []rbacv1.PolicyRule{rule}); !ok {
			t.Errorf("lack %v, which no binding in a namespace grants", missing)
		}
	}
	for _, rule := range always {
		if slices.Contains(rule.APIGroups, "*") || slices.Contains(rule.Resources, "*") || rule.Resources[0] != binding && namespaced[strings.Split(rule.Resources[0], "/")[0]] {
			t.Errorf("have %v in all namespaces", rule)
		}
	}
	for _, b := range objects[*rbacv1.ClusterRoleBinding](m) {
		if b.RoleRef.Name == "svc-controller-manager-fleet" && len(b.Subjects) > 0 {
			t.Errorf("%s grants it in all namespaces to %v", b.Name, b.Subjects)
		}
	}
	var bound []string
	for _, b := range objects[*rbacv1.RoleBinding](m) {
		if b.RoleRef.Name == "svc-controller-manager-fleet" {
			bound = append(bound, b.Namespace)
		}
	}
	slices.Sort(bound)
	if !slices.Equal(bound, host.Internal()) {
		t.Errorf("bound in %v, every fleet serves %v", bound, host.Internal())
	}
}

// The change is that of docs/aggregated.md.
func TestAUserNamesTheNamespacesOfAFleet(t *testing.T) {
	m := render(t, overlay{"aggregated", []string{"namespace-scoped"}}, func(k *kustomize.Kustomization) {
		k.Patches = []kustomize.Patch{{
			Target: &kustomize.Selector{ResId: resid.ResId{Gvk: resid.Gvk{Kind: "ConfigMap"}, Name: "svc-namespaces"}},
			Patch:  "- op: replace\n  path: /data/namespaces\n  value: team-a,team-b",
		}}
	})
	for _, w := range workloads(m) {
		if w.GetName() != "svc-apiserver" {
			continue
		}
		if _, flags := command(t, m, w.template.Spec.Containers[0]); !slices.Contains(flags, "--namespaces=team-a,team-b") {
			t.Errorf("the flags are %v", flags)
		}
		return
	}
	t.Error("no API server")
}

// The change is that of config/standalone/kustomization.yaml.
func TestAUserGivesTheAPIServersAKeyForTokens(t *testing.T) {
	m := render(t, overlay{"standalone", nil}, func(k *kustomize.Kustomization) {
		var patch strings.Builder
		for _, arg := range []string{"issuer=https://kubernetes.default.svc", "key-file=/etc/svc/pki/sa.key", "signing-key-file=/etc/svc/pki/sa.key"} {
			patch.WriteString("- op: add\n  path: /spec/template/spec/containers/0/args/-\n  value: --service-account-" + arg + "\n")
		}
		k.Patches = []kustomize.Patch{{
			Target: &kustomize.Selector{ResId: resid.ResId{Gvk: resid.Gvk{Kind: "Deployment"}, Name: "svc-apiserver"}}, Patch: patch.String(),
		}}
	})
	programsAcceptTheirFlags(t, m)
}

func TestControllersHaveNoPowerOverTheHost(t *testing.T) {
	for _, rule := range fleetRole(t) {
		for _, group := range rule.APIGroups {
			if strings.HasSuffix(group, ".svc.dev") {
				continue
			}
			for _, verb := range rule.Verbs {
				if group != "" || len(rule.Resources) != 1 || rule.Resources[0] != "namespaces" || !slices.Contains([]string{"get", "list", "watch"}, verb) {
					t.Errorf("may %s %v of the host's group %q", verb, rule.Resources, group)
				}
			}
		}
	}
}
