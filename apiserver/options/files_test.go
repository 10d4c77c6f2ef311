package options

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/util/cert"
	"k8s.io/component-base/cli/flag"
)

func TestABadFileThatIsReadAgainIsNamedWithItsFlag(t *testing.T) {
	dir := t.TempDir()
	certificate, key, err := cert.GenerateSelfSignedCertKey("server", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := New()
	files := map[string][]byte{}
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		files[path] = content
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	serving := &o.SecureServing.ServerCert.CertKey
	serving.CertFile, serving.KeyFile = file("tls-cert-file", certificate), file("tls-private-key-file", key)
	o.SecureServing.SNICertKeys = []flag.NamedCertKey{{CertFile: file("tls-sni-cert-key", certificate), KeyFile: file("tls-sni-cert-key.key", key)}}
	o.ProxyClientCertFile, o.ProxyClientKeyFile = file("proxy-client-cert-file", certificate), file("proxy-client-key-file", key)
	o.Authentication.ClientCAFile = file("client-ca-file", certificate)
	o.Authentication.RequestHeader.ClientCAFile = file("requestheader-client-ca-file", certificate)
	if errs := o.ValidateReloaded(); len(errs) > 0 {
		t.Fatalf("of good files: %v", errs)
	}
	for path, good := range files {
		name := "--" + strings.TrimSuffix(filepath.Base(path), ".key")
		for _, spoil := range []func() error{
			func() error { return os.Remove(path) },
			func() error { return os.WriteFile(path, []byte("no certificate"), 0o600) },
		} {
			if err := spoil(); err != nil {
				t.Fatal(err)
			}
			if errs := o.ValidateReloaded(); len(errs) != 1 || !strings.Contains(errs[0].Error(), name) || !strings.Contains(errs[0].Error(), path) {
				t.Errorf("%s: %v, want one error that names the flag and the file", path, errs)
			}
		}
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// With an authority in common and no names, every client could send the headers of any user.
func TestAnAuthorityOfClientsIsOneOfFrontProxiesOnlyWithTheirNames(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, certificates ...[]byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, bytes.Join(certificates, nil), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	authority := func(name string) []byte {
		certificate, _, err := cert.GenerateSelfSignedCertKey(name, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return certificate
	}
	ours, front := authority("clients"), authority("front")
	clients, proxies := file("clients", authority("other"), ours), file("proxies", front)
	both := file("both", front, ours)
	for _, test := range []struct {
		rule, clients, proxies, names string
		refused                       bool
	}{
		{rule: "one file", clients: clients, proxies: clients, refused: true},
		{rule: "one of several authorities", clients: clients, proxies: both, refused: true},
		{rule: "with names of front proxies", clients: clients, proxies: both, names: "front"},
		{rule: "other authorities", clients: clients, proxies: proxies},
		{rule: "no authorities of clients", proxies: both},
		{rule: "no authorities of front proxies", clients: clients},
	} {
		o, err := parse(t, "--etcd-servers=http://127.0.0.1:2379", "--client-ca-file="+test.clients, "--requestheader-client-ca-file="+test.proxies,
			"--requestheader-allowed-names="+test.names)
		if err != nil {
			t.Fatal(err)
		}
		errs := o.Validate()
		if len(errs) > 0 != test.refused {
			t.Errorf("%s: %v, refused should be %v", test.rule, errs, test.refused)
		}
		for _, err := range errs {
			for _, want := range []string{"--requestheader-client-ca-file: " + test.proxies, "--client-ca-file", test.clients, "set --requestheader-allowed-names"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v does not mention %s", test.rule, err, want)
				}
			}
		}
	}
}

func TestOnlyAdmissionPluginsThatAreEnabledNeedTheirKubeconfig(t *testing.T) {
	const plugin = "ValidatingAdmissionWebhook" // on by default
	for _, test := range []struct {
		name            string
		enable, disable []string
		want            bool // an error
	}{
		{plugin, nil, nil, true},
		{plugin, nil, []string{plugin}, false},
		{"ImagePolicyWebhook", nil, nil, false},
		{"ImagePolicyWebhook", []string{"ImagePolicyWebhook"}, nil, true},
	} {
		missing := filepath.Join(t.TempDir(), "missing")
		o := New()
		o.Admission.EnablePlugins, o.Admission.DisablePlugins = test.enable, test.disable
		o.Admission.ConfigFile = filepath.Join(t.TempDir(), "admission.yaml")
		content := "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: " + test.name +
			"\n  configuration: {kubeConfigFile: " + missing + ", imagePolicy: {kubeConfigFile: " + missing + "}}\n"
		if err := os.WriteFile(o.Admission.ConfigFile, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		var named bool
		for _, err := range o.validateFiles() {
			named = named || strings.Contains(err.Error(), "--admission-control-config-file: "+o.Admission.ConfigFile) && strings.Contains(err.Error(), missing)
		}
		if named != test.want {
			t.Errorf("%s, enabled %v, disabled %v: an error that names the kubeconfig: %t, want %t", test.name, test.enable, test.disable, named, test.want)
		}
	}
}
