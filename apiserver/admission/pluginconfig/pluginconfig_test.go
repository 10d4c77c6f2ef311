package pluginconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAConfigurationThatContradictsItselfIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "selectors.yaml"), []byte("podNodeSelectorPluginConfig: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	for _, test := range []struct {
		what, plugins string
		want          []string // parts of the error; none without one
	}{
		{"a file", "- {name: PodNodeSelector, path: selectors.yaml}\n", nil},
		{"a configuration", "- {name: PodNodeSelector, configuration: {podNodeSelectorPluginConfig: {}}}\n", nil},
		{"both", "- name: PodNodeSelector\n  path: selectors.yaml\n  configuration: {podNodeSelectorPluginConfig: {}}\n", []string{"plugins[0].path", "line 5", "set path or configuration"}},
		{"a plugin twice", "- {name: PodNodeSelector, path: selectors.yaml}\n- {name: EventRateLimit, path: selectors.yaml}\n- {name: PodNodeSelector, path: selectors.yaml}\n", []string{"plugins[2].name", "line 6", "plugins[0]", "keep one"}},
		{"a file that does not exist", "- {name: PodNodeSelector, path: none.yaml}\n", []string{"plugins[0].path", "line 4", "none.yaml", "can read"}},
	} {
		err := Check(filepath.Join(dir, "admission.yaml"), []byte(head+test.plugins))
		if (err == nil) != (len(test.want) == 0) {
			t.Errorf("%s: the error is %v", test.what, err)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not mention %q", test.what, err, want)
			}
		}
	}
}
