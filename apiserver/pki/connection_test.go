package pki

import (
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func TestAKubeconfigHasTheCertificateOfItsClient(t *testing.T) {
	e := newEnvironment(t)
	e.open(t)
	for name, file := range map[string]string{"admin": e.cfg.ConnectionFile, "controller-manager": e.cfg.ControllersFile} {
		config, err := clientcmd.BuildConfigFromFlags("", file)
		if err != nil {
			t.Fatal(err)
		}
		if config.Host != e.cfg.Server {
			t.Errorf("%s: it names %s", name, config.Host)
		}
		for what, is := range map[string]struct {
			got  []byte
			want string
		}{
			"authority":   {config.CAData, e.read(t, "ca.crt")},
			"certificate": {config.CertData, e.read(t, name+".crt")},
			"key":         {config.KeyData, e.read(t, name+".key")},
		} {
			if string(is.got) != is.want {
				t.Errorf("%s: its %s is not the one in the directory", name, what)
			}
		}
	}
}
