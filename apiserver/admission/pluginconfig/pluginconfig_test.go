package pluginconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var known = []string{"EventRateLimit", "ImagePolicyWebhook", "MutatingAdmissionWebhook", "PodNodeSelector", "ValidatingAdmissionWebhook"}

func TestAConfigurationThatContradictsItselfIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "selectors.yaml"), []byte("podNodeSelectorPluginConfig: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"malformed": "{", "webhooks.yaml": "\nkubeConfigFile: " + filepath.Join(dir, "malformed") + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	missing := filepath.Join(dir, "missing")
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	for _, test := range []struct {
		what, plugins string
		want          []string // parts of the error; none without one
	}{
		{"a file", "- {name: PodNodeSelector, path: selectors.yaml}\n", nil},
		{"a configuration", "- {name: PodNodeSelector, configuration: {podNodeSelectorPluginConfig: {}}}\n", nil},
		{"both", "- name: PodNodeSelector\n  path: selectors.yaml\n  configuration: {podNodeSelectorPluginConfig: {}}\n", []string{"plugins[0].path", "line 5", "set path or configuration"}},
		{"a plugin twice", "- {name: PodNodeSelector, path: selectors.yaml}\n- {name: EventRateLimit, path: selectors.yaml}\n- {name: PodNodeSelector, path: selectors.yaml}\n", []string{"plugins[2].name", "line 6", "plugins[0]", "keep one"}},
		{"a misspelt plugin", "- {name: PodNodeSelector, path: selectors.yaml}\n- {name: EventRatLimit, configuration: {}}\n", []string{"plugins[1].name", "line 5", `did you mean "EventRateLimit"?`}},
		{"a plugin that does not exist", "- {name: Frobnicate, configuration: {}}\n", []string{"plugins[0].name", "line 4", "docs/reference/admission.md"}},
		{"a file that does not exist", "- {name: PodNodeSelector, path: none.yaml}\n", []string{"plugins[0].path", "line 4", "none.yaml", "can read"}},
		{"a kubeconfig that does not exist", "- name: MutatingAdmissionWebhook\n  configuration: {kubeConfigFile: " + missing + "}\n", []string{"plugins[0].configuration.kubeConfigFile: ", "line 5", missing, "can read"}},
		{"a malformed kubeconfig, by a file", "- {name: ValidatingAdmissionWebhook, path: webhooks.yaml}\n", []string{"line 4: plugins[0].path: webhooks.yaml: line 2: kubeConfigFile: ", "malformed"}},
		{"a kubeconfig of image policies", "- name: ImagePolicyWebhook\n  configuration:\n    imagePolicy:\n      kubeConfigFile: " + missing + "\n", []string{"plugins[0].configuration.imagePolicy.kubeConfigFile: ", "line 7", missing}},
		{"no kubeconfig", "- {name: MutatingAdmissionWebhook, configuration: {}}\n", nil},
	} {
		err := Check(filepath.Join(dir, "admission.yaml"), []byte(head+test.plugins), known, func(string) bool { return true })
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

// TestTheFilesOfPluginsThatAreOffAreNotRead: kube-apiserver does not construct them either.
func TestTheFilesOfPluginsThatAreOffAreNotRead(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	content := "plugins:\n- {name: ImagePolicyWebhook, configuration: {imagePolicy: {kubeConfigFile: " + missing + "}}}\n"
	for _, on := range []bool{true, false} {
		err := Check("admission.yaml", []byte(content), known, func(plugin string) bool { return on && plugin == ImagePolicyWebhook })
		if (err != nil) != on {
			t.Errorf("with the plugin on: %t: %v", on, err)
		}
	}
}
