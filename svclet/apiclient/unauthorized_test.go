package apiclient

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	testclock "k8s.io/utils/clock/testing"
)

func TestWhyTheAPIServerDoesNotKnowTheAgent(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer server.Close()
	certificate, _, err := cert.GenerateSelfSignedCertKey("node", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := cert.ParseCertsPEM(certificate)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "node.crt")
	if err := os.WriteFile(file, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	data, inFile := rest.TLSClientConfig{CertData: certificate}, rest.TLSClientConfig{CertFile: file}
	for _, test := range []struct {
		rule string
		from rest.TLSClientConfig
		now  time.Time
		want string // empty is the server's own answer
	}{
		{"its certificate has expired", data, chain[0].NotAfter.Add(time.Second), "the client certificate of --svcconfig has expired at " + chain[0].NotAfter.Format(time.RFC3339) + ": put a new one in its place"},
		{"that of a file has", inFile, chain[0].NotAfter.Add(time.Second), "the client certificate " + file + " has expired"},
		{"its clock is slow", data, chain[0].NotBefore.Add(-time.Second), "set the clock"},
		{"something else", data, chain[0].NotAfter.Add(-time.Hour), ""},
		{"it has no certificate", rest.TLSClientConfig{}, chain[0].NotAfter.Add(time.Second), ""},
	} {
		t.Run(test.rule, func(t *testing.T) {
			client := http.Client{Transport: &unauthorized{http.DefaultTransport, test.from, testclock.NewFakePassiveClock(test.now)}}
			resp, err := client.Get(server.URL)
			if err == nil {
				resp.Body.Close()
			}
			switch {
			case test.want == "" && (err != nil || resp.StatusCode != http.StatusUnauthorized):
				t.Errorf("got %v, %v", resp, err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
