package stream

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"k8s.io/streaming/pkg/httpstream"
)

// mute is a connection to a runtime that never answers.
type mute struct {
	httpstream.Connection
	asked, freed chan struct{}
}

func (m mute) CreateStream(http.Header) (httpstream.Stream, error) {
	close(m.asked)
	<-m.freed
	return nil, errors.New("timed out")
}
func (mute) CloseChan() <-chan bool { return nil }
func (mute) Close() error           { return nil }

func TestADisconnectedClientsRequestDoesNotWaitForTheRuntime(t *testing.T) {
	ctx, goes := context.WithCancel(t.Context())
	runtime := mute{asked: make(chan struct{}), freed: make(chan struct{})}
	defer close(runtime.freed)
	f := &forwarder{ctx: ctx, conn: runtime}
	ended := make(chan error, 1)
	go func() { ended <- f.PortForward(ctx, "sandbox", "", 80, nil) }()
	<-runtime.asked
	goes()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	f.close()
}
