package apiserver_test

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/util/cert"
)

// TestNoRequestFailsWhileTheServingCertificateIsReplaced overwrites the files of the serving
// certificate while clients send requests on old and on new connections, and while a watch and
// an upgraded connection, as those of exec, are open.
func TestNoRequestFailsWhileTheServingCertificateIsReplaced(t *testing.T) {
	dir := t.TempDir()
	o, _ := newOptions(t)
	files := &o.SecureServing.ServerCert.CertKey
	files.CertFile, files.KeyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	replace := func() (leaf []byte) {
		certificate, key, err := cert.GenerateSelfSignedCertKey("server", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for file, content := range map[string][]byte{files.CertFile: certificate, files.KeyFile: key} {
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		block, _ := pem.Decode(certificate)
		return block.Bytes
	}
	served := func(host string) []byte {
		conn, err := tls.Dial("tcp", host, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Raw
	}
	first := replace()
	r := start(t, o)
	host := strings.TrimPrefix(r.url, "https://")
	if string(served(host)) != string(first) {
		t.Fatal("the server has another certificate than that of the file")
	}
	watch, upgraded := openWatch(t, r), openUpgraded(t, r)

	var stop atomic.Bool
	var requests sync.WaitGroup
	for _, client := range []*http.Client{r.client, {Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}} {
		on := &running{url: r.url, client: client}
		requests.Go(func() {
			for !stop.Load() {
				if code, body, err := on.try(t, adminToken, http.MethodGet, "/api/v1/namespaces/default", ""); err != nil || code != http.StatusOK {
					t.Errorf("a request while the certificate was replaced: %d %s, %v", code, body, err)
					return
				}
			}
		})
	}
	second := replace()
	await(t, func() (int, string) {
		if string(served(host)) != string(second) {
			return http.StatusTeapot, "the server has the first certificate"
		}
		return http.StatusOK, ""
	}, http.StatusOK)
	stop.Store(true)
	requests.Wait()
	const name = "after-the-replacement"
	if code, body := r.do(t, http.MethodPost, "/api/v1/namespaces/default/configmaps", fmt.Sprintf(`{"metadata": {"name": %q}}`, name), false); code != http.StatusCreated {
		t.Fatalf("%d %s", code, body)
	}
	for what, stream := range map[string]io.Reader{"the watch": watch, "the upgraded connection": upgraded} {
		if !reads(stream, name) {
			t.Errorf("%s ended when the certificate was replaced", what)
		}
	}
}

// reads reports whether a stream has the text in a line before it ends.
func reads(stream io.Reader, text string) bool {
	for buffered := bufio.NewReader(stream); ; {
		line, err := buffered.ReadString('\n')
		if strings.Contains(line, text) {
			return true
		}
		if err != nil {
			return false
		}
	}
}

// watchedMaps is the path of a watch.
const watchedMaps = "/api/v1/namespaces/default/configmaps?watch=true"

// openWatch returns the events of a watch.
func openWatch(t *testing.T, r *running) io.Reader {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+watchedMaps, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp.Body
}

// openUpgraded returns what a connection receives that has become one of the websocket
// protocol (RFC 6455), on which the server sends the events of a watch.
func openUpgraded(t *testing.T, r *running) io.Reader {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+watchedMaps, nil)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Origin": r.url,
		"Sec-WebSocket-Protocol": "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(adminToken)) + ", base64.binary.k8s.io",
	} {
		req.Header.Set(key, value)
	}
	resp, err := newClient().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the connection was not upgraded: %s", resp.Status)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp.Body
}
