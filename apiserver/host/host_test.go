package host

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// kubeconfig writes a file that reaches a server.
func kubeconfig(t *testing.T, server string, authority []byte) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["h"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: authority}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "h"}
	config.CurrentContext = "c"
	file := filepath.Join(t.TempDir(), "host")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAuthenticationNamesTheRemedy(t *testing.T) {
	refusals := map[string]int{"alice": http.StatusForbidden, "unknown": http.StatusUnauthorized, "alone": http.StatusNotFound}
	reasons := map[int]string{http.StatusForbidden: "Forbidden", http.StatusUnauthorized: "Unauthorized", http.StatusNotFound: "NotFound"}
	wants := map[string]string{
		"alice":   `configmaps is forbidden: bind its role extension-apiserver-authentication-reader to the user`,
		"unknown": "the host %s rejects the credentials: use those of a user of this host",
		"alone":   "the host %s has no ConfigMap extension-apiserver-authentication in the namespace kube-system: its API server must run with --requestheader-client-ca-file",
	}
	check := func(name, file, want string) {
		t.Helper()
		h, err := Connect(Options{Kubeconfig: file})
		if err != nil {
			t.Fatal(err)
		}
		want = "--host-kubeconfig: " + file + ": " + want
		if _, err := h.Authentication(); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	for name, code := range refusals {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"configmaps is forbidden","reason":%q,"code":%d}`, reasons[code], code)
		}))
		defer server.Close()
		authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		want := wants[name]
		if code != http.StatusForbidden {
			want = fmt.Sprintf(want, server.URL)
		}
		check(name, kubeconfig(t, server.URL, authority), want)
	}
	server := httptest.NewTLSServer(http.NotFoundHandler())
	check("another authority", kubeconfig(t, server.URL, nil),
		fmt.Sprintf("the certificate of the host %s is not trusted: x509: certificate signed by unknown authority: use the authority of this host", server.URL))
	address := server.Listener.Addr()
	server.Close()
	check("nothing listens", kubeconfig(t, server.URL, nil),
		fmt.Sprintf("the host %s does not answer: dial tcp %s: connect: connection refused: start it, or correct the address", server.URL, address))
}

func TestConnectNamesFlagAndFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "host")
	if err := os.WriteFile(file, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Connect(Options{Kubeconfig: file}); err == nil || err.Error() != "--host-kubeconfig: "+file+": it is not a kubeconfig: couldn't get version/kind" {
		t.Error(err)
	}
}
