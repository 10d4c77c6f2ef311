package apiserver

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/client-go/util/keyutil"

	"svc.dev/svc/apiserver/options"
)

func TestTheServingKeyVerifiesTokensByDefault(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good"), filepath.Join(dir, "bad")
	key, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{good: key, bad: []byte("no key")} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		rule, serving string
		files, want   []string
	}{
		{"its file is the default", good, nil, []string{good}},
		{"a file of the flag replaces it", good, []string{"named"}, []string{"named"}},
		{"a key of another algorithm is not used", bad, nil, nil},
		{"without a serving key there is none", "", nil, nil},
	} {
		t.Run(test.rule, func(t *testing.T) {
			o := options.New()
			o.SecureServing.ServerCert.CertKey.KeyFile, o.ServiceAccounts.KeyFiles = test.serving, test.files
			if got := tokenKeyFiles(o); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
