package healthserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/component-base/cli/flag"
)

// TestABadFileIsReportedBeforeTheManagerWaits checks each flag of a file: the server reads the
// files only once the API server answers.
func TestABadFileIsReportedBeforeTheManagerWaits(t *testing.T) {
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, set := range map[string]func(o *Options, file string){
		"tls-cert-file": func(o *Options, file string) {
			o.SecureServing.ServerCert.CertKey.CertFile, o.SecureServing.ServerCert.CertKey.KeyFile = file, os.Args[0]
		},
		"tls-private-key-file": func(o *Options, file string) {
			o.SecureServing.ServerCert.CertKey.CertFile, o.SecureServing.ServerCert.CertKey.KeyFile = os.Args[0], file
		},
		"tls-sni-cert-key": func(o *Options, file string) {
			o.SecureServing.SNICertKeys = []flag.NamedCertKey{{CertFile: file, KeyFile: os.Args[0]}}
		},
		"client-ca-file":               func(o *Options, file string) { o.Authentication.ClientCert.ClientCA = file },
		"requestheader-client-ca-file": func(o *Options, file string) { o.Authentication.RequestHeader.ClientCAFile = file },
		"authentication-kubeconfig":    func(o *Options, file string) { o.Authentication.RemoteKubeConfigFile = file },
		"authorization-kubeconfig":     func(o *Options, file string) { o.Authorization.RemoteKubeConfigFile = file },
	} {
		for _, bad := range []string{file, filepath.Dir(file), file + ".nowhere"} {
			o := NewOptions()
			set(o, bad)
			if errs := o.Validate(); len(errs) != 1 || !strings.Contains(errs[0].Error(), "--"+name) || !strings.Contains(errs[0].Error(), bad) {
				t.Errorf("--%s=%s: %v, want one error that names both", name, bad, errs)
			}
		}
	}
	if errs := NewOptions().Validate(); len(errs) > 0 {
		t.Errorf("without files: %v", errs)
	}
}
