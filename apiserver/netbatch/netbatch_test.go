package netbatch

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// gated is a connection that accepts one write for each token, and all writes when
// the channel of tokens is closed.
type gated struct {
	net.Conn
	tokens chan struct{}

	mu     sync.Mutex
	writes [][]byte
	err    error
	closed chan struct{}
}

func newGated() *gated { return &gated{tokens: make(chan struct{}), closed: make(chan struct{})} }

func (g *gated) Write(p []byte) (int, error) {
	select {
	case <-g.tokens:
	case <-g.closed:
		return 0, net.ErrClosed
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return 0, g.err
	}
	g.writes = append(g.writes, bytes.Clone(p))
	return len(p), nil
}

func (g *gated) Close() error {
	select {
	case <-g.closed:
	default:
		close(g.closed)
	}
	return nil
}

func (g *gated) taken() (writes int, all string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.writes), string(bytes.Join(g.writes, nil))
}

func write(t *testing.T, c net.Conn, p []byte) {
	t.Helper()
	if n, err := c.Write(p); n != len(p) || err != nil {
		t.Errorf("%d of %d bytes, %v", n, len(p), err)
	}
}

func TestWritesDuringASystemCallAreSentTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := newGated()
		c := NewListener(nil).newConn(end)
		write(t, c, []byte("a"))
		synctest.Wait() // its system call lasts
		for _, s := range []string{"b", "c", "d"} {
			write(t, c, []byte(s))
		}
		close(end.tokens)
		synctest.Wait()
		if n, all := end.taken(); n != 2 || all != "abcd" {
			t.Errorf("%q in %d system calls", all, n)
		}
	})
}

func TestAWriteWaitsIfTheBufferIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := newGated()
		c := NewListener(nil).newConn(end)
		write(t, c, []byte("a"))
		synctest.Wait()
		piece := make([]byte, 1<<10)
		for range maxPending / len(piece) {
			write(t, c, piece)
		}
		written := make(chan struct{})
		go func() {
			write(t, c, piece)
			close(written)
		}()
		synctest.Wait()
		select {
		case <-written:
			t.Error("more than maxPending bytes are buffered")
		default:
		}
		end.tokens <- struct{}{}
		<-written
		close(end.tokens)
		synctest.Wait()
		if _, all := end.taken(); len(all) != 1+maxPending+len(piece) {
			t.Errorf("%d bytes", len(all))
		}
	})
}

func TestALargeWriteIsNotBuffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := newGated()
		c := NewListener(nil).newConn(end)
		written := make(chan struct{})
		go func() {
			write(t, c, make([]byte, minDirect))
			close(written)
		}()
		synctest.Wait()
		write(t, c, []byte("after"))
		select {
		case <-written:
			t.Error("it was buffered")
		default:
		}
		end.tokens <- struct{}{}
		<-written
		end.tokens <- struct{}{}
		synctest.Wait()
		if n, all := end.taken(); n != 2 || all[minDirect:] != "after" {
			t.Errorf("%d system calls", n)
		}
	})
}

func TestAnErrorIsReturnedByTheNextWriteAndClosesTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := newGated()
		end.err = errors.New("broken")
		close(end.tokens)
		c := NewListener(nil).newConn(end)
		write(t, c, []byte("a"))
		<-end.closed
		for range 2 {
			if _, err := c.Write([]byte("b")); !errors.Is(err, end.err) {
				t.Errorf("got %v", err)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// piped returns a connection, and its reader, which takes a write when it reads.
func piped() (*Listener, *conn, net.Conn) {
	ours, reader := net.Pipe()
	l := NewListener(nil)
	return l, l.newConn(ours), reader
}

func TestAClosedConnectionSendsWhatIsPending(t *testing.T) {
	for name, stop := range map[string]func(net.Conn) error{
		"close": net.Conn.Close,
		"a deadline in the past, and close, as TLS does": func(c net.Conn) error {
			return errors.Join(c.SetWriteDeadline(time.Now().Add(5*time.Second)), c.SetWriteDeadline(time.Now()), c.Close())
		},
		"a deadline that passes": func(c net.Conn) error {
			defer func() { _ = c.Close() }()
			err := c.SetDeadline(time.Now().Add(time.Second))
			time.Sleep(2 * time.Second)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, c, reader := piped()
				write(t, c, []byte("sent, "))
				synctest.Wait()
				write(t, c, []byte("pending"))
				if err := stop(c); err != nil {
					t.Error(err)
				}
				if _, err := c.Write([]byte("more")); !errors.Is(err, net.ErrClosed) {
					t.Errorf("a closed connection is written to: %v", err)
				}
				time.Sleep(lingerTimeout / 2)
				if got, err := io.ReadAll(reader); string(got) != "sent, pending" || err != nil {
					t.Errorf("got %q, %v", got, err)
				}
				l.Drain()
				if n := l.linger(0); n != 0 {
					t.Errorf("%d connections linger", n)
				}
			})
		})
	}
}

func TestAClosedConnectionIsNotReadAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, reader := piped()
		write(t, c, []byte("pending"))
		reads := make(chan error)
		go func() { _, err := c.Read(make([]byte, 1)); reads <- err }()
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-reads; !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v", err)
		}
		for _, err := range []error{c.Close(), c.SetDeadline(time.Time{})} {
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("got %v", err)
			}
		}
		_ = reader.Close()
	})
}

func TestAReaderThatNeverReadsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, c, reader := piped()
		write(t, c, []byte("pending"))
		began := time.Now()
		if err := c.Close(); err != nil || time.Since(began) != 0 {
			t.Errorf("closing took %s, %v", time.Since(began), err)
		}
		if l.Drain(); time.Since(began) != stopTimeout {
			t.Errorf("the end of the process waits for %s", time.Since(began))
		}
		time.Sleep(lingerTimeout)
		if got, err := io.ReadAll(reader); len(got) != 0 || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		if n := l.linger(0); n != 0 {
			t.Errorf("%d connections linger", n)
		}
	})
}

func TestAWriteThatWaitsEnds(t *testing.T) {
	for name, test := range map[string]struct {
		size int // of the write
		stop func(net.Conn) error
		want error
	}{
		"in the buffer, when the connection is closed": {maxPending, net.Conn.Close, net.ErrClosed},
		"in the buffer, when its deadline passes":      {maxPending, func(c net.Conn) error { return c.SetWriteDeadline(time.Now().Add(time.Second)) }, os.ErrDeadlineExceeded},
		"sent directly, when the connection is closed": {0, net.Conn.Close, io.ErrClosedPipe},
		"sent directly, when its deadline passes":      {0, func(c net.Conn) error { return c.SetWriteDeadline(time.Now().Add(time.Second)) }, os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, c, reader := piped()
				if test.size > 0 { // of what is there before
					write(t, c, []byte("a"))
					synctest.Wait()
					write(t, c, make([]byte, test.size))
				}
				ended := make(chan error)
				go func() { _, err := c.Write(make([]byte, minDirect)); ended <- err }()
				synctest.Wait()
				if err := test.stop(c); err != nil {
					t.Error(err)
				}
				if err := <-ended; !errors.Is(err, test.want) {
					t.Errorf("got %v", err)
				}
				_, _ = c.Close(), reader.Close()
			})
		})
	}
}

func TestADeadlineThatIsTakenBackHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, reader := piped()
		go func() { _, _ = io.Copy(io.Discard, reader) }()
		for _, size := range []int{1, minDirect} {
			for _, deadline := range []time.Time{time.Now().Add(-time.Second), time.Now().Add(time.Second), {}} {
				if err := c.SetWriteDeadline(deadline); err != nil {
					t.Error(err)
				}
				if deadline.After(time.Now()) {
					write(t, c, make([]byte, size))
				}
			}
			time.Sleep(time.Minute)
			write(t, c, make([]byte, size))
		}
		_, _ = c.Close(), reader.Close()
	})
}

func TestEveryByteArrivesInOrder(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ours := NewListener(listener)
	defer func() { _ = ours.Close() }()
	data := make([]byte, 8<<20)
	rand.New(rand.NewSource(1)).Read(data)
	go func() {
		c, err := ours.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		sizes := rand.New(rand.NewSource(2))
		for rest := data; len(rest) > 0; {
			n := min(len(rest), 1+sizes.Intn([]int{10, 1 << 10, 1 << 14, 1 << 17}[sizes.Intn(4)]))
			if _, err := c.Write(rest[:n]); err != nil {
				t.Error(err)
			}
			rest = rest[n:]
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	got, err := io.ReadAll(client)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d of %d bytes, %v", len(got), len(data), err)
	}
}

func TestAServerRespondsThroughTheListener(t *testing.T) {
	body := bytes.Repeat([]byte("answer "), 1<<15)
	for _, http2 := range []bool{false, true} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if _, err := w.Write(body); err != nil {
				t.Error(err)
			}
		}))
		server.Listener = NewListener(server.Listener)
		server.EnableHTTP2 = http2
		server.StartTLS()
		var clients sync.WaitGroup
		for range 20 {
			clients.Go(func() {
				resp, err := server.Client().Get(server.URL)
				if err != nil {
					t.Error(err)
					return
				}
				defer func() { _ = resp.Body.Close() }()
				if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, body) {
					t.Errorf("%d of %d bytes, %v", len(got), len(body), err)
				}
			})
		}
		clients.Wait()
		server.Close()
	}
}

func TestTLSClosesWithItsAlert(t *testing.T) {
	server := httptest.NewTLSServer(nil) // for its certificate
	defer server.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ours := tls.NewListener(NewListener(listener), &tls.Config{Certificates: server.TLS.Certificates})
	defer func() { _ = ours.Close() }()
	go func() {
		c, err := ours.Accept()
		if err == nil {
			_, err = c.Write([]byte("all"))
		}
		if err == nil {
			err = c.Close()
		}
		if err != nil {
			t.Error(err)
		}
	}()
	client, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	// Without the alert the client would get an unexpected EOF.
	if got, err := io.ReadAll(client); err != nil || string(got) != "all" {
		t.Errorf("%q, %v", got, err)
	}
}
