package hack_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// host stands for svc at a host whose APIService v1.fleet.svc.dev leads to the Service $SERVES;
// if that is empty, the host has no such APIService. What would change the host is written to
// the file $CHANGES.
const host = `#!/usr/bin/env bash
set -euo pipefail
case $* in
'kubectl get apiservice v1.fleet.svc.dev --ignore-not-found -o jsonpath={.spec.service.namespace}/{.spec.service.name}') printf '%s' "$SERVES" ;;
*) echo "$1 $2" >>"$CHANGES" ;;
esac
`

// rendered returns a file with the manifests of a directory of config.
func rendered(t *testing.T, config string) string {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join("..", "config", config))
	if err != nil {
		t.Fatal(err)
	}
	content, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "svc.yaml")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// changes runs a script with manifests at a host, and returns what it has changed there.
func changes(t *testing.T, script, manifests, serves string) (changed, output string, err error) {
	t.Helper()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "svc"), []byte(host), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(bin, "changes")
	cmd := exec.CommandContext(t.Context(), "bash", script, manifests)
	cmd.Env = append(os.Environ(), "BIN="+bin, "KUBECONFIG=host", "SERVES="+serves, "CHANGES="+file)
	out, err := cmd.CombinedOutput()
	content, readErr := os.ReadFile(file)
	if readErr != nil && !os.IsNotExist(readErr) {
		t.Fatal(readErr)
	}
	return strings.ReplaceAll(strings.TrimSpace(string(content)), "\n", ", "), string(out), err
}

func TestAFleetIsNotReplacedByOneInAnotherNamespace(t *testing.T) {
	inSystem, inTeam, standalone := rendered(t, "aggregated"), rendered(t, "testdata/namespace"), rendered(t, "standalone")
	const deployed, undeployed = "kubectl apply", "unregister --force, kubectl delete"
	for _, test := range []struct {
		name, script, manifests, serves, want string
	}{
		{"a first fleet", "deploy.sh", inSystem, "", deployed},
		{"a fleet that is upgraded", "deploy.sh", inSystem, "svc-system/svc-apiserver", deployed},
		{"a fleet in a namespace of its own that is upgraded", "deploy.sh", inTeam, "team-fleet/svc-apiserver", deployed},
		{"a second fleet", "deploy.sh", inTeam, "svc-system/svc-apiserver", ""},
		{"a group of the host", "deploy.sh", inTeam, "/", ""},
		{"no fleet", "deploy.sh", standalone, "svc-system/svc-apiserver", deployed},
		{"the removal of a fleet", "undeploy.sh", inSystem, "svc-system/svc-apiserver", undeployed},
		{"the removal of a fleet that is unregistered", "undeploy.sh", inSystem, "", undeployed},
		{"the removal of another fleet", "undeploy.sh", inSystem, "team-fleet/svc-apiserver", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			changed, out, err := changes(t, test.script, test.manifests, test.serves)
			if changed != test.want || (err == nil) != (test.want != "") {
				t.Errorf("the host is changed by %q, want %q; %v\n%s", changed, test.want, err, out)
			}
			if err != nil && (!strings.Contains(out, "svc.dev") || !strings.Contains(out, test.serves) || !strings.Contains(out, "undeploy")) {
				t.Errorf("the message is %s", out)
			}
		})
	}
}
