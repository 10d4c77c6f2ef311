package launch

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
)

// Request is an HTTP request that is sent as it is.
type Request struct {
	Method, Path string
	ContentType  string
	Accept       string
	Body         string
	Header       map[string]string
	// Anonymous leaves the certificate of the configuration out; Token is sent
	// instead, if set.
	Anonymous bool
	Token     string
}

// Response is the response to a Request, with its whole body.
type Response struct {
	Status int
	Header http.Header
	Body   string
}

// Object reads the body as a JSON object.
func (r Response) Object() (map[string]any, error) {
	var object map[string]any
	return object, json.Unmarshal([]byte(r.Body), &object)
}

// Send sends a request with the credentials of config. The body of the response
// is as the server sent it: it is compressed if the request asked for that.
func Send(ctx context.Context, config *rest.Config, r Request) (Response, error) {
	config = rest.CopyConfig(config)
	config.DisableCompression = true
	if r.Anonymous {
		config = rest.AnonymousClientConfig(config)
		config.BearerToken = r.Token
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return Response{}, err
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, config.Host+r.Path, strings.NewReader(r.Body))
	if err != nil {
		return Response{}, err
	}
	for name, value := range r.Header {
		req.Header.Set(name, value)
	}
	if r.ContentType != "" {
		req.Header.Set("Content-Type", r.ContentType)
	}
	if r.Accept != "" {
		req.Header.Set("Accept", r.Accept)
	}
	resp, err := client.Do(req)
	if err != nil {
		return Response{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return Response{Status: resp.StatusCode, Header: resp.Header, Body: string(body)}, err
}
