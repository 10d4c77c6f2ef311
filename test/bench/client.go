package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// A client is one HTTP/2 connection to a server. It sends bodies as they are
// and reads answers to their end without decoding them, so that the clients'
// share of the two machines' processors stays small.
type client struct {
	http *http.Client
	base string // such as https://127.0.0.1:6443
	// header is that of all requests, for a client that vouches for a user.
	header http.Header
}

// request is what the benchmark varies of an HTTP request.
type request struct {
	method, path string
	contentType  string // of the body; default application/json
	accept       string // default application/json
	gzip         bool   // accept a compressed answer (which is not unpacked)
	body         []byte
}

const (
	jsonType     = "application/json"
	protobufType = "application/vnd.kubernetes.protobuf"
	mergeType    = "application/merge-patch+json"
	applyType    = "application/apply-patch+yaml"
)

// dial opens n connections.
func dial(ctx context.Context, config *rest.Config, n int) ([]*client, error) {
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	clients := make([]*client, n)
	for i := range clients {
		clients[i] = newClient(config.Host, tlsConfig.Clone())
		if err := clients[i].do(ctx, request{method: http.MethodGet, path: "/livez"}); err != nil {
			return nil, err
		}
	}
	return clients, nil
}

func newClient(base string, tlsConfig *tls.Config) *client {
	protocols := &http.Protocols{}
	protocols.SetHTTP2(true)
	return &client{base: base, http: &http.Client{Transport: &http.Transport{
		TLSClientConfig:     tlsConfig,
		Protocols:           protocols,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 1,
		IdleConnTimeout:     10 * time.Minute,
	}}}
}

func closeAll(clients []*client) {
	for _, c := range clients {
		c.http.CloseIdleConnections()
	}
}

// do sends a request and reads the answer to its end.
func (c *client) do(ctx context.Context, r request) error {
	body, err := c.open(ctx, r)
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(io.Discard, body)
	return err
}

// open sends a request and returns the body of a successful answer, which the
// caller closes. Any other answer is an error with the beginning of its body.
func (c *client) open(ctx context.Context, r request) (io.ReadCloser, error) {
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, c.base+r.path, body)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, c.header)
	req.Header.Set("Accept", cmp.Or(r.accept, jsonType))
	if r.body != nil {
		req.Header.Set("Content-Type", cmp.Or(r.contentType, jsonType))
	}
	if r.gzip {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		defer resp.Body.Close()
		message, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		if err != nil {
			return nil, err
		}
		return nil, &statusError{code: resp.StatusCode, message: fmt.Sprintf("%s %s: %s: %s", r.method, r.path, resp.Status, strings.TrimSpace(string(message)))}
	}
	return resp.Body, nil
}

// statusError is an answer that is not a success.
type statusError struct {
	code    int
	message string
}

func (e *statusError) Error() string { return e.message }
