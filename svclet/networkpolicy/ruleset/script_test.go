package ruleset_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/knftables"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/internal/golden"
	"svc.dev/svc/svclet/networkpolicy/ruleset"
)

// TestScripts plays the scripts of testdata, for the node "here". The commands:
//
//	namespace NAME LABELS          adds a namespace or changes its labels
//	pod NAMESPACE/NAME LABELS      adds a pod or changes it; the body is its spec and status
//	policy NAMESPACE/NAME          adds a policy or changes it; the body is its spec
//	delete KIND NAME               deletes an object
//	change [FAMILY]                writes the change of a family's table, IPv4 by default, and prints it
//	rules [FAMILY]                 prints a family's table
func TestScripts(t *testing.T) {
	golden.Run(t, func(t *testing.T) golden.Handler { return newScript(t).do })
}

type script struct {
	t     *testing.T
	model *ruleset.Model
	fakes map[string]*knftables.Fake
}

var families = map[string]knftables.Family{"IPv4": knftables.IPv4Family, "IPv6": knftables.IPv6Family}

func newScript(t *testing.T) *script {
	s := &script{t: t, model: ruleset.NewModel(""), fakes: map[string]*knftables.Fake{}}
	for name, family := range families {
		s.fakes[name] = knftables.NewFake(family, "svc0-policies")
		tx := s.fakes[name].NewTransaction()
		s.model.Create(family, tx)
		s.run(name, tx)
	}
	return s
}

func (s *script) do(c golden.Command) string {
	family := "IPv4"
	switch c.Name {
	case "namespace":
		s.model.SetNamespace(c.Args[0], labelsOf(c.Args[1:]))
	case "pod":
		namespace, name, _ := strings.Cut(c.Args[0], "/")
		p := &corev1.Pod{}
		s.decode(c.Body, p)
		p.Namespace, p.Labels = namespace, labelsOf(c.Args[1:])
		uid := types.UID(namespace + "/" + name)
		if pod, found := ruleset.PodOf(p, "here"); found {
			s.model.SetPod(uid, pod)
		} else {
			s.model.RemovePod(uid)
		}
	case "policy":
		p := &networkingv1.NetworkPolicy{}
		s.decode(c.Body, &p.Spec)
		p.Namespace, p.Name, _ = strings.Cut(c.Args[0], "/")
		s.model.SetPolicy(p)
	case "delete":
		s.remove(c.Args[0], c.Args[1])
	case "change":
		if len(c.Args) > 0 {
			family = c.Args[0]
		}
		tx := s.fakes[family].NewTransaction()
		s.model.Change(families[family], tx)
		s.run(family, tx)
		return strings.NewReplacer(" ip svc0-policies ", " ", " ip6 svc0-policies ", " ").Replace(tx.String())
	case "rules":
		if len(c.Args) > 0 {
			family = c.Args[0]
		}
		return s.fakes[family].Dump()
	default:
		s.t.Fatalf("unknown command %q", c.Name)
	}
	return ""
}

func (s *script) remove(kind, name string) {
	namespace, of, _ := strings.Cut(name, "/")
	switch kind {
	case "namespace":
		s.model.RemoveNamespace(name)
	case "pod":
		s.model.RemovePod(types.UID(name))
	case "policy":
		s.model.RemovePolicy(namespace, of)
	default:
		s.t.Fatalf("unknown kind %q", kind)
	}
}

func (s *script) decode(body string, into any) {
	if err := yaml.UnmarshalStrict([]byte(body), into); err != nil {
		s.t.Fatal(err)
	}
}

func (s *script) run(family string, tx *knftables.Transaction) {
	if err := s.fakes[family].Run(context.Background(), tx); err != nil {
		s.t.Fatalf("%v\n%s", err, tx)
	}
}

func labelsOf(args []string) map[string]string {
	all := map[string]string{}
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		all[key] = value
	}
	return all
}
