package plugins

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/server/options"

	"svc.dev/svc/apiserver/admission/tolerationseconds"
)

func TestEveryPluginIsRegisteredUnderItsName(t *testing.T) {
	library := options.NewAdmissionOptions()
	var names []string
	for _, p := range All(tolerationseconds.NewDefaults()) {
		names = append(names, p.Name)
		if p.register == nil {
			if !slices.Contains(library.RecommendedPluginOrder, p.Name) {
				t.Errorf("%s is registered nowhere", p.Name)
			}
			continue
		}
		before := library.Plugins.Registered()
		p.Register(library.Plugins)
		if after := library.Plugins.Registered(); len(after) != len(before)+1 || !slices.Contains(after, p.Name) {
			t.Errorf("%s registers another name", p.Name)
		}
	}
	for _, name := range library.Plugins.Registered() {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not in the list", name)
		}
	}
}

func TestEveryPluginIsDocumented(t *testing.T) {
	for _, p := range All(tolerationseconds.NewDefaults()) {
		if !strings.HasSuffix(p.Does, ".") || strings.ToLower(p.Does[:1]) != p.Does[:1] {
			t.Errorf("%s: %q is not a sentence that begins with a verb", p.Name, p.Does)
		}
	}
}
