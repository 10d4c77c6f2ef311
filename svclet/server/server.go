package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/server/auth"
)

// Server is the agent's HTTP server.
type Server struct {
	o             Options
	parts         Parts
	certificates  *certificates
	authenticator *auth.Authenticator
	authorizer    *auth.Authorizer
	tls           *tls.Config

	running gate // counts requests, including those with hijacked connections
}

// New returns a server. It returns an error for contradictory options, and for
// certificates that cannot be read or created.
func New(o Options, parts Parts) (*Server, error) {
	if parts.Clock == nil {
		parts.Clock = clock.RealClock{}
	}
	if o.LogDirectory == "" {
		o.LogDirectory = "/var/log"
	}
	s := &Server{o: o, parts: parts}
	var err error
	if s.certificates, err = newCertificates(o, parts.Clock); err != nil {
		return nil, err
	}
	if s.tls, err = s.certificates.config(o); err != nil {
		return nil, err
	}
	s.authenticator, err = auth.NewAuthenticator(auth.Authentication{
		Anonymous: o.AnonymousAuth, ClientCAs: s.certificates.clientCAs(),
		TokenReview: o.TokenWebhook, TokenTTL: o.TokenWebhookCacheTTL,
	}, parts.Reviews, parts.Clock)
	if err != nil {
		return nil, err
	}
	s.authorizer, err = auth.NewAuthorizer(auth.Authorization{
		Mode: o.AuthorizationMode, NodeName: o.NodeName,
		AuthorizedTTL: o.AuthorizedTTL, UnauthorizedTTL: o.UnauthorizedTTL,
	}, parts.Reviews, parts.Clock)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Serve serves on the ports until ctx is done, and returns when no request is in
// flight any more. It closes the ports and all connections, including streams.
func (s *Server) Serve(ctx context.Context, l *Listeners) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type server struct {
		listener net.Listener
		handler  http.Handler
		tls      *tls.Config
	}
	var group sync.WaitGroup
	failures := make(chan error, 3)
	for _, each := range []server{
		{l.secure, s.Handler(), s.tls},
		{l.readOnly, s.ReadOnlyHandler(), nil},
		{l.healthz, s.HealthHandler(), nil},
	} {
		if each.listener == nil {
			continue
		}
		h := s.httpServer(ctx, each.handler)
		h.TLSConfig = each.tls
		group.Go(func() {
			<-ctx.Done()
			_ = h.Close() // closes the listener and idle connections; an error has no consequence
		})
		group.Go(func() {
			defer cancel()
			var err error
			if each.tls != nil {
				err = h.ServeTLS(each.listener, "", "")
			} else {
				err = h.Serve(each.listener)
			}
			if !errors.Is(err, http.ErrServerClosed) {
				failures <- fmt.Errorf("serve on %s: %w", each.listener.Addr(), err)
			}
		})
	}
	group.Wait()
	s.running.close()
	close(failures)
	return <-failures
}

// httpServer returns a server with limits on what a slow or hostile client can
// hold.
func (s *Server) httpServer(ctx context.Context, h http.Handler) *http.Server {
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if s.running.enter() {
				defer s.running.leave()
				h.ServeHTTP(w, r)
			}
		}),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 30 * time.Second,
		ReadTimeout:       maxConnection,
		WriteTimeout:      maxConnection,
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    1 << 20, // the command of an exec is in the query
		ErrorLog:          log.New(serverLog{klog.FromContext(ctx)}, "", 0),
	}
}

// gate counts requests in flight until it is closed.
type gate struct {
	mu     sync.Mutex
	inside sync.WaitGroup
	closed bool
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside.Add(1)
	return true
}

func (g *gate) leave() { g.inside.Done() }

// close refuses further requests and waits for those in flight.
func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.inside.Wait()
}

// serverLog logs the HTTP server's messages about disconnects and failed
// handshakes at high verbosity only, because any client can cause them.
type serverLog struct{ logger klog.Logger }

func (l serverLog) Write(p []byte) (int, error) {
	l.logger.V(3).Info("Received message from HTTP server", "message", string(bytes.TrimSpace(p)))
	return len(p), nil
}

// limited accepts connections that are closed after [maxConnection] in any case.
type limited struct{ net.Listener }

func (l limited) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	accepted := &limitedConn{Conn: c}
	accepted.timer = time.AfterFunc(maxConnection, func() { _ = c.Close() })
	return accepted, nil
}

type limitedConn struct {
	net.Conn
	timer *time.Timer
}

func (c *limitedConn) Close() error {
	c.timer.Stop()
	return c.Conn.Close()
}
