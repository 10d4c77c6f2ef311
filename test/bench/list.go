package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"google.golang.org/protobuf/encoding/protowire"
)

// chunk is the page size (limit) of kubectl and client-go.
const chunk = 500

// measureLists lists the pods of a namespace, by a single client.
func measureLists(ctx context.Context, t *trial) error {
	clients, err := t.clients(ctx, 64)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	if err := t.seedPods(ctx, clients, t.sizes.ListPods); err != nil {
		return err
	}
	path := podKind().collection(listNamespace)
	for _, l := range []struct {
		name string
		list func(context.Context, *client) error
	}{
		{"JSON", whole(request{path: path})},
		{"protobuf", whole(request{path: path, accept: protobufType})},
		{"JSON, gzip", whole(request{path: path, gzip: true})},
		{"JSON, resourceVersion=0", whole(request{path: path + "?resourceVersion=0"})},
		{"JSON, chunks", chunks(request{path: path}, jsonContinue)},
		{"protobuf, chunks", chunks(request{path: path, accept: protobufType}, protobufContinue)},
	} {
		if err := l.list(ctx, clients[0]); err != nil { // to warm up
			return fmt.Errorf("%s: %w", l.name, err)
		}
		o, err := t.load(ctx, clients[:1], t.sizes.Lists, func(ctx context.Context, c *client, _ int) error { return l.list(ctx, c) })
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		name := "list pods, " + l.name
		t.record(lower(name, "p50", "ms"), percentile(o.latencies, 50))
		t.record(lower(name, "server processor", "s/1000"), o.cpuPerThousand())
	}
	return nil
}

// measureRelist lists the pods of a namespace by many clients at the same time, with the
// request of client-go's informers: after an API server was away, all of them send it.
func measureRelist(ctx context.Context, t *trial) error {
	clients, err := t.clients(ctx, t.sizes.Relisters)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	if err := t.seedPods(ctx, clients, t.sizes.ListPods); err != nil {
		return err
	}
	list := whole(request{path: podKind().collection(listNamespace) + "?resourceVersion=0", accept: protobufType, gzip: true})
	o, err := t.load(ctx, clients, len(clients), func(ctx context.Context, c *client, _ int) error { return list(ctx, c) })
	if err != nil {
		return err
	}
	name := fmt.Sprintf("list pods, %d clients at once", len(clients))
	t.record(lower(name, "p50", "ms"), percentile(o.latencies, 50))
	t.record(lower(name, "the last one", "ms"), percentile(o.latencies, 100))
	t.record(lower(name, "server processor", "s/1000"), o.cpuPerThousand())
	return t.recordMemory(name)
}

// seedPods creates pods until there are n.
func (t *trial) seedPods(ctx context.Context, clients []*client, n int) error {
	_, err := t.createPods(ctx, clients, n)
	return err
}

// createPods creates pods until there are n, and returns what that took.
func (t *trial) createPods(ctx context.Context, clients []*client, n int) (outcome, error) {
	if err := t.namespace(ctx, clients[0], listNamespace); err != nil {
		return outcome{}, err
	}
	k, before := podKind(), t.pods
	o, err := t.load(ctx, clients, max(0, n-before), func(ctx context.Context, c *client, i int) error {
		return c.do(ctx, k.create(listNamespace, podName(before+i), 0))
	})
	t.pods = max(n, before)
	return o, err
}

// podName returns the name of the i-th pod of listNamespace.
func podName(i int) string { return fmt.Sprintf("pod-%06d", i) }

func whole(r request) func(context.Context, *client) error {
	r.method = http.MethodGet
	return func(ctx context.Context, c *client) error { return c.do(ctx, r) }
}

// chunks follows the continue tokens. token finds the token at the beginning of an
// answer.
func chunks(r request, token func(head []byte) string) func(context.Context, *client) error {
	path := r.path
	return func(ctx context.Context, c *client) error {
		r := r
		r.method = http.MethodGet
		for next := "start"; next != ""; {
			r.path = fmt.Sprintf("%s?limit=%d", path, chunk)
			if next != "start" {
				r.path += "&continue=" + url.QueryEscape(next)
			}
			var err error
			if next, err = readChunk(ctx, c, r, token); err != nil {
				return err
			}
		}
		return nil
	}
}

func readChunk(ctx context.Context, c *client, r request, token func([]byte) string) (string, error) {
	body, err := c.open(ctx, r)
	if err != nil {
		return "", err
	}
	defer body.Close()
	reader := bufio.NewReaderSize(body, 4<<10)
	head, err := reader.Peek(reader.Size())
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	next := token(head) // before the next read overwrites the head
	_, err = io.Copy(io.Discard, reader)
	return next, err
}

// jsonContinue returns metadata.continue, which precedes the items.
func jsonContinue(head []byte) string {
	head, _, _ = bytes.Cut(head, []byte(`"items":`))
	_, after, found := bytes.Cut(head, []byte(`"continue":"`))
	if !found {
		return ""
	}
	token, _, _ := bytes.Cut(after, []byte(`"`))
	return string(token)
}

// protobufContinue returns metadata.continue: field 3 of ListMeta, which is field 1
// of a list, which is field 2 of runtime.Unknown behind four magic bytes.
func protobufContinue(head []byte) string {
	head, found := bytes.CutPrefix(head, []byte("k8s\x00"))
	if !found {
		return ""
	}
	return string(protobufField(protobufField(protobufField(head, 2), 1), 3))
}

// protobufField returns the value of a length-delimited field, which may be
// truncated at the end of the message.
func protobufField(message []byte, number protowire.Number) []byte {
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return nil
		}
		message = message[size:]
		if kind != protowire.BytesType {
			if size = protowire.ConsumeFieldValue(n, kind, message); size < 0 {
				return nil
			}
			message = message[size:]
			continue
		}
		length, size := protowire.ConsumeVarint(message)
		if size < 0 {
			return nil
		}
		message = message[size:]
		end := min(length, uint64(len(message)))
		if n == number {
			return message[:end]
		}
		message = message[end:]
	}
	return nil
}
