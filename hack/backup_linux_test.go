package hack_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"
)

// secretPath is that of the Secret which etcd mounts. It finds nothing if cert-manager makes the
// certificates, as etcd mounts several then.
const secretPath = `{.spec.template.spec.volumes[?(@.name=="pki")].secret.secretName}`

// programs are those that hack/backup.sh runs at a fleet whose etcd mounts the Secret $MOUNTED,
// or, if that is empty, what cert-manager has made. Etcdctl saves its client's certificate
// instead of a snapshot.
var programs = map[string]string{
	"svc": `#!/usr/bin/env bash
set -euo pipefail
shift 2
case "$1 $2" in
'get statefulset') [[ $5 == "jsonpath=$SECRET_PATH" ]] && printf '%s' "$MOUNTED" ;;
'get secret') echo "$3 $5" ;;
'port-forward svc-etcd-0') echo 'Forwarding from 127.0.0.1:4321 -> 2379' && exec tail -f /dev/null ;;
esac
`,
	"etcdctl": `#!/usr/bin/env bash
set -euo pipefail
for arg; do
	[[ $arg != --cert=* ]] || cp "${arg#--cert=}" "${!#}"
done
`,
}

func TestABackupUsesTheCertificateThatEtcdMounts(t *testing.T) {
	bin := t.TempDir()
	for name, content := range programs {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for mounted, want := range map[string]string{
		mountedSecret(t): `svc-etcd go-template={{index .data "client.crt" | base64decode}}`,
		"":               `svc-etcd-client go-template={{index .data "tls.crt" | base64decode}}`,
	} {
		file := filepath.Join(t.TempDir(), "snapshot")
		cmd := exec.CommandContext(t.Context(), "bash", "backup.sh", file)
		cmd.Env = append(os.Environ(), "BIN="+bin, "KUBECONFIG=host", "SECRET_PATH="+secretPath, "MOUNTED="+mounted)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(string(got)) != want {
			t.Errorf("etcd mounts %q: the certificate is %s, want %s", mounted, got, want)
		}
	}
}

// mountedSecret returns the Secret that etcd mounts by the manifests.
func mountedSecret(t *testing.T) string {
	t.Helper()
	s, err := runtime.DefaultUnstructuredConverter.ToUnstructured(etcd(t))
	if err != nil {
		t.Fatal(err)
	}
	path, name := jsonpath.New("secret"), &strings.Builder{}
	if err := errors.Join(path.Parse(secretPath), path.Execute(name, s)); err != nil {
		t.Fatal(err)
	}
	if name.Len() == 0 {
		t.Fatalf("the manifests have nothing at %s", secretPath)
	}
	return name.String()
}

// Without KUBECONFIG, svc kubectl would use the svc up of the user.
func TestWithoutKUBECONFIGNoClusterIsChanged(t *testing.T) {
	for _, args := range [][]string{
		{"make", "-C", "..", "--no-print-directory", "kubeconfig"},
		{"bash", "undeploy.sh", os.DevNull}, {"bash", "backup.sh", "snapshot"}, {"bash", "restore.sh", "snapshot"},
	} {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "KUBECONFIG=", "BIN="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "KUBECONFIG: export KUBECONFIG=FILE") {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
}
