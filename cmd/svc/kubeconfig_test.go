package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func TestKubeconfigPrintsTheFleetsOwnAddressAtTheHost(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("authority"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "config")
	if err := os.WriteFile(file, []byte(`{"clusters":[{"name":"h","cluster":{"server":"https://host:6443/","certificate-authority":"ca.crt"}},{"name":"x","cluster":{"server":"https://x"}}],
		"users":[{"name":"alice","user":{"token":"t"}},{"name":"bob","user":{"token":"b"}}],
		"contexts":[{"name":"c","context":{"cluster":"h","user":"alice","namespace":"team"}}],"current-context":"c"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errOut strings.Builder
	if code := run([]string{"kubeconfig", "--group-domain=example.com", "--fleet-name=edge", "--host-kubeconfig", file}, &out, &errOut); code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut.String())
	}
	config, err := clientcmd.Load([]byte(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	context := config.Contexts[config.CurrentContext]
	cluster := config.Clusters[context.Cluster]
	if got, want := cluster.Server, "https://host:6443/apis/fleet.example.com/v1/fleets/edge/proxy"; got != want {
		t.Errorf("server %s, want %s", got, want)
	}
	if string(cluster.CertificateAuthorityData) != "authority" || context.Namespace != "team" || config.AuthInfos[context.AuthInfo].Token != "t" || len(config.AuthInfos) != 1 {
		t.Errorf("printed %s", out.String())
	}
}

func TestKubeconfigPrintsAbsolutePathsOfTokenFilesAndPlugins(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config")
	if err := os.WriteFile(file, []byte(`{"clusters":[{"name":"h","cluster":{"server":"https://host:6443"}}],
		"users":[{"name":"alice","user":{"tokenFile":"token","exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"./login"}}}],
		"contexts":[{"name":"c","context":{"cluster":"h","user":"alice"}}],"current-context":"c"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errOut strings.Builder
	if code := run([]string{"kubeconfig", "--group-domain=example.com", "--svcconfig", file}, &out, &errOut); code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut.String())
	}
	config, err := clientcmd.Load([]byte(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	alice := config.AuthInfos["alice"]
	if alice == nil || alice.TokenFile != filepath.Join(dir, "token") || alice.Exec.Command != filepath.Join(dir, "login") {
		t.Errorf("printed %s", out.String())
	}
}

func TestKubeconfigSaysWhatItNeeds(t *testing.T) {
	for want, args := range map[string][]string{
		"--group-domain: name the domain of the fleet's groups":                                   nil,
		`--group-domain: "k8s.io" belongs to Kubernetes`:                                          {"--group-domain=k8s.io"},
		"--svcconfig: /none: no such file or directory: name a kubeconfig that can be read":       {"--group-domain=svc.dev", "--svcconfig=/none"},
		"--host-kubeconfig: /none: no such file or directory: name a kubeconfig that can be read": {"--group-domain=svc.dev", "--host-kubeconfig=/none"},
	} {
		var out, errOut strings.Builder
		if code := run(append([]string{"kubeconfig"}, args...), &out, &errOut); code != 1 || !strings.Contains(errOut.String(), want) || strings.Count(errOut.String(), "\n") != 1 {
			t.Errorf("%q: exit code %d, %q, want one line with %q", args, code, errOut.String(), want)
		}
	}
}

func TestKubeconfigNamesAContextWithoutAServer(t *testing.T) {
	for name, content := range map[string]string{
		"no cluster": `{"clusters":[{"name":"x","cluster":{"server":"https://x"}}],"contexts":[{"name":"c","context":{"namespace":"a"}}],"current-context":"c"}`,
		"no server":  `{"clusters":[{"name":"h","cluster":{}}],"contexts":[{"name":"c","context":{"cluster":"h"}}],"current-context":"c"}`,
	} {
		file := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errOut strings.Builder
		code := run([]string{"kubeconfig", "--group-domain=svc.dev", "--host-kubeconfig=" + file}, &out, &errOut)
		if want := "--host-kubeconfig: " + file + `: the context "c" names no cluster with a server`; code != 1 || !strings.Contains(errOut.String(), want) {
			t.Errorf("%s: exit code %d, %q, want %q", name, code, errOut.String(), want)
		}
	}
}

func TestACommandWhoseServerRefusesConnectionsSaysWhatMayHelp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(`{"clusters":[{"name":"h","cluster":{"server":"http://127.0.0.1:1"}}],"contexts":[{"name":"c","context":{"cluster":"h"}}],"current-context":"c"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"token", "list"}, {"token", "create"}, {"storage", "migrate"}} {
		var out, errOut strings.Builder
		code := run(append(args, "--svcconfig="+file), &out, &errOut)
		if want := "connect: connection refused: start \"svc up\", or name another cluster by --svcconfig or KUBECONFIG\n"; code != 1 || !strings.HasSuffix(errOut.String(), want) {
			t.Errorf("%v: exit code %d, %q, want %q at the end", args, code, errOut.String(), want)
		}
	}
}
