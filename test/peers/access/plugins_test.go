package access

import (
	"os"
	"slices"
	"testing"

	sigsyaml "sigs.k8s.io/yaml"

	"svc.dev/svc/apiserver/admission/plugins"
	"svc.dev/svc/test/peers/difference"
)

// cases are the requests, by their names, that show what an admission plugin does.
type cases struct {
	// Accepts is a request whose object the plugin accepts as it is; Refuses one that it refuses.
	Accepts, Refuses string
	// Changes is a request whose object the plugin changes, with the fields that it sets.
	Changes map[string]map[string]string
	// Never lists what the plugin never does: changes, refuses.
	Never []string
	// Lacking says why there are none: kube-apiserver does not have the plugin.
	Lacking string
}

// readCases reads plugins.yaml.
func readCases(t *testing.T) map[string]cases {
	t.Helper()
	content, err := os.ReadFile("plugins.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]cases
	if err := sigsyaml.UnmarshalStrict(content, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestEveryPluginHasItsCases requires, of each plugin that svc has, a request that it accepts,
// one that it changes and one that it refuses, unless it never does that.
func TestEveryPluginHasItsCases(t *testing.T) {
	named := map[string]bool{}
	for _, file := range []string{"admission.yaml", "configured.yaml", "later.yaml", "deny.yaml", "webhooks.yaml", "policies.yaml"} {
		for _, s := range steps(t, file) {
			if named[s.Is] && s.Is != "" {
				t.Errorf("%s: two requests are called %q", file, s.Is)
			}
			named[s.Is] = true
		}
	}
	named[""] = false
	all := readCases(t)
	for _, p := range plugins.All(plugins.Settings{}) {
		of, ok := all[p.Name]
		if delete(all, p.Name); !ok {
			t.Errorf("plugins.yaml lacks %s", p.Name)
		}
		if of.Lacking == "" {
			of.check(t, p.Name, named)
		}
	}
	for name := range all {
		t.Errorf("plugins.yaml has %s, which is not a plugin", name)
	}
}

// check requires that the cases of a plugin are complete, and among the requests.
func (c cases) check(t *testing.T, plugin string, named map[string]bool) {
	t.Helper()
	if !named[c.Accepts] {
		t.Errorf("%s: accepts: there is no request %q", plugin, c.Accepts)
	}
	if named[c.Refuses] == slices.Contains(c.Never, "refuses") {
		t.Errorf("%s: refuses: there is no request %q, or it never does", plugin, c.Refuses)
	}
	if (len(c.Changes) == 1) == slices.Contains(c.Never, "changes") {
		t.Errorf("%s: changes: %d requests, or it never does", plugin, len(c.Changes))
	}
	for is, fields := range c.Changes {
		if !named[is] || len(fields) == 0 {
			t.Errorf("%s: changes: there is no request %q, or it sets no field", plugin, is)
		}
	}
}

// checkCases requires that the response of a server to a request is what the cases that it is
// of say.
func checkCases(t *testing.T, all map[string]cases, s step, server string, response difference.Fields) {
	t.Helper()
	sent, err := difference.Of(s.Body, func(_, text string) string { return text })
	if err != nil {
		t.Fatal(err)
	}
	for plugin, of := range all {
		fields, changed := of.Changes[s.Is]
		if accepted := response["answer"] == "success"; (s.Is == of.Accepts || changed) && !accepted || s.Is == of.Refuses && accepted {
			t.Errorf("%s: %s of %s: answer %s", plugin, s.Is, server, response["answer"])
		}
		for field, value := range fields {
			if response[field] != value || sent[field] == value {
				t.Errorf("%s: %s of %s: %s is %q, want %q, sent %q", plugin, s.Is, server, field, response[field], value, sent[field])
			}
		}
	}
}
