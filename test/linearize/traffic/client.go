package traffic

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/test/linearize/history"
	"svc.dev/svc/test/linearize/model"
)

// requestTimeout is how long a client waits for a response.
const requestTimeout = 3 * time.Second

// client is one client, with a connection of its own. It sends one request at a time,
// each once.
type client struct {
	traffic *Traffic
	id      int
	http    *http.Client
	url     string
	random  *rand.Rand
	// known are objects that it has received, by key; versions those of lists.
	known    map[string]history.Object
	versions []uint64
	written  int
}

func dialer() *net.Dialer { return &net.Dialer{Timeout: requestTimeout} }

// request is a request for a path below the collection.
type request struct {
	method, key string
	query       url.Values
	contentType string
	body        any
}

// response is a response with a status, or the error of which there is none.
type response struct {
	code int
	body []byte
	err  error
}

// send sends a request. Now and then, the client ends soon after.
func (c *client) send(ctx context.Context, r request) response {
	timeout := requestTimeout
	if c.random.IntN(30) == 0 {
		timeout = time.Duration(c.random.Int64N(int64(20 * time.Millisecond)))
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := c.open(ctx, r)
	if err != nil {
		return response{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return response{code: resp.StatusCode, body: body, err: err}
}

// open sends a request and returns the response, of which the caller closes the body.
func (c *client) open(ctx context.Context, r request) (*http.Response, error) {
	body, err := json.Marshal(r.body)
	if err != nil {
		return nil, err
	}
	path := c.url
	if r.key != "" {
		path += "/" + r.key
	}
	req, err := http.NewRequestWithContext(ctx, r.method, path+"?"+r.query.Encode(), strings.NewReader(string(body)))
	if err != nil {
		return nil, err
	}
	req.GetBody = nil // the transport must not send it again
	if r.body == nil {
		req.Body, req.ContentLength = http.NoBody, 0
	}
	req.Header.Set("Content-Type", r.contentType)
	return c.http.Do(req)
}

// succeeded reports whether a response has its whole body and reports success.
func (r response) succeeded() bool { return r.err == nil && r.code < 300 }

// outcome returns the outcome of a request for a key.
func (c *client) outcome(r request, resp response) model.Outcome {
	var status metav1.Status
	switch {
	case resp.succeeded():
		return model.OK
	case resp.err != nil, resp.code >= http.StatusInternalServerError, resp.code == http.StatusTooManyRequests, resp.code == http.StatusGone:
		return model.Unknown
	case json.Unmarshal(resp.body, &status) == nil:
		switch status.Reason {
		case metav1.StatusReasonNotFound:
			if status.Details != nil && status.Details.Name == r.key {
				return model.NotFound
			}
		case metav1.StatusReasonAlreadyExists:
			return model.Exists
		case metav1.StatusReasonConflict:
			return model.Conflict
		case metav1.StatusReasonInvalid:
			if r.contentType == jsonPatch {
				return model.OtherContent
			}
		}
	}
	c.traffic.record.unexpectedf("%s %s %v %v: %d %s", r.method, r.key, r.query, r.body, resp.code, resp.body)
	return model.Unknown
}

// object reads an object.
func (c *client) object(body []byte) history.Object {
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &object); err != nil {
		c.traffic.record.unexpectedf("%v in %q", err, body)
	}
	return history.ObjectOf(&object, c.version(object.ResourceVersion))
}

func (c *client) version(text string) uint64 {
	version, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		c.traffic.record.unexpectedf("resourceVersion: %v", err)
	}
	return version
}

// pause waits a little, and reports whether the context has not ended.
func (c *client) pause(ctx context.Context) bool {
	timer := time.NewTimer(time.Duration(c.random.Int64N(int64(pause))))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
