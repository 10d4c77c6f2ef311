package stream

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// tunnelPrefix is the prefix of websocket subprotocols that tunnel SPDY
// (KEP-4006).
const tunnelPrefix = "SPDY/3.1+"

// tunnel upgrades the client's connection to a websocket, and returns a writer and
// a request that look like a SPDY upgrade over that websocket.
func tunnel(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request, error) {
	var inner []string
	for _, p := range websocket.Subprotocols(r) {
		if name, ok := strings.CutPrefix(p, tunnelPrefix); ok && name == "portforward.k8s.io" {
			inner = append(inner, name)
		}
	}
	if len(inner) == 0 {
		http.Error(w, "unable to upgrade: no tunneling spdy protocols provided", http.StatusBadRequest)
		return nil, r, errors.New("no known protocol to tunnel")
	}
	// Requests are authenticated by credentials that no browser adds by itself, so the
	// origin does not matter.
	upgrader := websocket.Upgrader{Subprotocols: []string{tunnelPrefix + inner[0]}, CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := upgrader.Upgrade(w, r, nil) // answers the client itself on failure
	if err != nil {
		return nil, r, fmt.Errorf("upgrade to a websocket: %w", err)
	}
	through := portforward.NewTunnelingConnectionWithLogger(klog.FromContext(r.Context()), conn)

	as := r.Clone(r.Context())
	as.Method, as.Body = http.MethodPost, http.NoBody
	for _, h := range []string{"Sec-Websocket-Protocol", "Sec-Websocket-Key", "Sec-Websocket-Version"} {
		as.Header.Del(h)
	}
	as.Header.Set(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
	as.Header.Set(httpstream.HeaderUpgrade, spdy.HeaderSpdy31)
	as.Header[http.CanonicalHeaderKey(httpstream.HeaderProtocolVersion)] = inner
	return &tunnelWriter{conn: through, header: http.Header{}}, as, nil
}

// tunnelWriter is the writer of a connection that has been upgraded. What a
// handler writes before it hijacks the connection is dropped: the client has been
// answered already.
type tunnelWriter struct {
	conn   net.Conn
	header http.Header
}

func (w *tunnelWriter) Header() http.Header         { return w.header }
func (w *tunnelWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *tunnelWriter) WriteHeader(int)             {}

// Hijack returns the websocket as a connection.
func (w *tunnelWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return w.conn, bufio.NewReadWriter(bufio.NewReader(w.conn), bufio.NewWriter(w.conn)), nil
}
