package faults

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
)

// wire passes on what it gets, or holds it back.
type wire struct {
	address string
	mu      sync.RWMutex // locked while it holds

	connections sync.Map // of net.Conn, both ends
}

// newWire returns a wire to an address.
func newWire(t *testing.T, to string) *wire {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = listener.Close() })
	w := &wire{address: listener.Addr().String()}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			go w.connect(t.Context(), near, to)
		}
	}()
	return w
}

func (w *wire) connect(ctx context.Context, near net.Conn, to string) {
	var dialer net.Dialer
	far, err := dialer.DialContext(ctx, "tcp", to)
	if err != nil {
		_ = near.Close()
		return
	}
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		w.connections.Store(way[0], nil)
		go func() {
			_, _ = io.Copy(held{way[0], w}, way[1])
			_, _ = near.Close(), far.Close()
			w.connections.Delete(way[0])
		}()
	}
}

// held writes when its wire does not hold.
type held struct {
	io.Writer
	wire *wire
}

func (h held) Write(p []byte) (int, error) {
	h.wire.mu.RLock()
	defer h.wire.mu.RUnlock()
	return h.Writer.Write(p)
}

func (w *wire) hold()    { w.mu.Lock() }
func (w *wire) release() { w.mu.Unlock() }

// cut closes all connections. Clients can connect again.
func (w *wire) cut() {
	for connection := range w.connections.Range {
		_ = connection.(net.Conn).Close()
	}
}
