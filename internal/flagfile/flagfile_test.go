package flagfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/util/cert"
)

func TestAnErrorOfAFileHasTheFlagTheFileAndTheRemedy(t *testing.T) {
	dir := t.TempDir()
	certificate, key, err := cert.GenerateSelfSignedCertKey("a", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := cert.GenerateSelfSignedCertKey("b", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"crt": string(certificate), "key": string(key), "other": string(other), "text": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for _, test := range []struct {
		rule string
		got  []error
		want string
	}{
		{"a pair", Pair("cert", "crt", "key", "key"), ""},
		{"no pair", Pair("cert", "", "key", ""), ""},
		{"half of a pair", Pair("cert", "crt", "key", ""), "--cert and --key: set both or none"},
		{"another key", Pair("cert", "crt", "key", "other"),
			"--cert and --key: crt and other: tls: private key does not match public key; name PEM files of a certificate and of its key"},
		{"no file", Check("ca", "", Certificates), ""},
		{"a file that is not there", Check("ca", "nowhere", Certificates), "--ca: stat nowhere: no such file or directory; name a file that the server can read"},
		{"a directory", Check("ca", ".", Certificates), "--ca: . is a directory; name a file that the server can read"},
		{"certificates", Check("ca", "crt", Certificates), ""},
		{"text", Check("ca", "text", Certificates), "--ca: text: data does not contain any valid RSA or ECDSA certificates; name a PEM file of certificates"},
		{"any content", Check("any", "text", Unchecked), ""},
	} {
		got := ""
		if err := errors.Join(test.got...); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.rule, got, test.want)
		}
	}
}
