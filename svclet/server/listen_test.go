package server

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are pipes.
type pipes struct {
	opened chan net.Conn
	closed chan struct{}
	close  func()
}

func newPipes() pipes {
	p := pipes{opened: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

// dial returns the client's end of a new connection.
func (p pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.opened <- server
	return client
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.opened:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error {
	p.close()
	return nil
}

func (p pipes) Addr() net.Addr { return nil }

func TestAConnectionBeforeTheServerServesIsServedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		l := acceptFrom(p)
		defer l.Close()
		client := p.dial()
		time.Sleep(startWait - 1) // the clock of synctest
		served, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = served.Write([]byte("x")) // the client reports it
			served.Close()
		}()
		if got, err := io.ReadAll(client); string(got) != "x" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

func TestAConnectionDoesNotWaitForeverForTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		l := acceptFrom(p)
		defer l.Close()
		began := time.Now()
		for range maxWaiting + 1 {
			client := p.dial()
			defer client.Close()
		}
		last := p.dial()
		if got, err := io.ReadAll(last); len(got) > 0 || err != nil {
			t.Errorf("got %q, %v, want a closed connection", got, err)
		}
		if waited := time.Since(began); waited != 2*startWait {
			t.Errorf("it waits for %s beside %d others, want %s", waited, maxWaiting+1, 2*startWait)
		}
	})
}

func TestConnectionsThatWaitAreClosedWithTheListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		l := acceptFrom(p)
		client := p.dial()
		synctest.Wait()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(client); err != nil {
			t.Errorf("the connection fails with %v, want its end", err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept returns %v", err)
		}
	})
}
