package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// measureWatches opens a watch of the pods and reads until it has received all of
// them, as an informer does at its start.
func measureWatches(ctx context.Context, t *trial) error {
	clients, err := t.clients(ctx, 64)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	if err := t.seedPods(ctx, clients, t.sizes.ListPods); err != nil {
		return err
	}
	path := podKind().collection(listNamespace) + "?watch=true&resourceVersion=0"
	for _, w := range []struct {
		name, accept string
		skipEvent    func(*bufio.Reader) error
	}{
		{"JSON", jsonType, skipLine},
		{"protobuf", protobufType + ";stream=watch", skipFrame},
	} {
		o, err := t.load(ctx, clients[:1], t.sizes.Lists, func(ctx context.Context, c *client, _ int) error {
			return watchInitial(ctx, c, request{method: http.MethodGet, path: path, accept: w.accept}, t.pods, w.skipEvent)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		name := "watch pods, " + w.name
		t.record(lower(name, "p50", "ms"), percentile(o.latencies, 50))
		t.record(lower(name, "server processor", "s/1000"), o.cpuPerThousand())
	}
	return nil
}

// watchTimeout bounds a watch: a server that omits objects must not block the
// benchmark.
const watchTimeout = 2 * time.Minute

// watchInitial reads n events of a watch.
func watchInitial(ctx context.Context, c *client, r request, n int, skipEvent func(*bufio.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	body, err := c.open(ctx, r)
	if err != nil {
		return err
	}
	defer body.Close()
	reader := bufio.NewReaderSize(body, 32<<10)
	for range n {
		if err := skipEvent(reader); err != nil {
			return err
		}
	}
	return nil
}

// skipLine skips an event in JSON, which ends with the only newline in it.
func skipLine(r *bufio.Reader) error {
	for {
		_, err := r.ReadSlice('\n')
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

// skipFrame skips an event in protobuf, which begins with its length in four
// bytes.
func skipFrame(r *bufio.Reader) error {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return err
	}
	_, err := r.Discard(int(binary.BigEndian.Uint32(length[:])))
	return err
}
