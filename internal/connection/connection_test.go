package connection

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadSaysWhatIsWrongWithAFile(t *testing.T) {
	const valid = `{"clusters":[{"name":"h","cluster":{"server":"https://host:6443"}}],
		"users":[{"name":"alice","user":{"token":"t"}}],
		"contexts":[{"name":"c","context":{"cluster":"h","user":"alice"}}],"current-context":"c"}`
	for _, c := range []struct{ name, content, want string }{
		{"valid", valid, ""},
		{"nothing", "", "it does not say which API server to use: add a cluster, or name another file"},
		{"text", "hello", "it is not a kubeconfig: couldn't get version/kind"},
		{"yaml", "clusters: [", "it is not a kubeconfig: yaml: line 1: did not find expected node content"},
		{"context", strings.Replace(valid, `"current-context":"c"`, `"current-context":"other"`, 1),
			`it has no context "other", which is its current-context: name one of its contexts there`},
		{"authority", strings.Replace(valid, `"server":`, `"certificate-authority-data":"aGVsbG8=","server":`, 1),
			"unable to load root certificates: unable to parse bytes as PEM block: correct the file"},
		{"reference", strings.Replace(valid, `"server":`, `"certificate-authority":"/nowhere/ca.crt","server":`, 1),
			"invalid configuration: unable to read certificate-authority /nowhere/ca.crt for h due to open /nowhere/ca.crt: no such file or directory: correct the file"},
	} {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		var got string
		if _, err := Read(file); err != nil {
			got = err.Error()
		}
		if c.want != "" {
			c.want = file + ": " + c.want
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if _, err := Read("/nowhere/file"); err == nil || err.Error() != "/nowhere/file: no such file or directory: name a kubeconfig that can be read" {
		t.Error(err)
	}
}
