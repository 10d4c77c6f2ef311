package source

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

const (
	// urlTimeout bounds one request, including its body.
	urlTimeout = 10 * time.Second
	// maxRedirects bounds the redirects of a request.
	maxRedirects = 10
	// maxLoggedFailures is how many consecutive failures are logged before -v=4 is
	// required.
	maxLoggedFailures = 4
)

// poller polls the manifest URL.
type poller struct {
	s      *Sources
	client *http.Client
	// digest is the hash of the last valid answer, tag its ETag.
	digest   [sha256.Size]byte
	tag      string
	failures int
}

// pollURL polls the manifest URL until ctx is done.
func (s *Sources) pollURL(ctx context.Context) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	p := &poller{s: s, client: &http.Client{Timeout: urlTimeout, Transport: transport, CheckRedirect: s.checkRedirect}}
	ticker := s.o.Clock.NewTicker(s.o.HTTPCheckFrequency)
	defer ticker.Stop()
	for {
		if err := p.poll(ctx); ctx.Err() == nil {
			p.report(ctx, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// report logs consecutive failures at decreasing verbosity, and the recovery.
func (p *poller) report(ctx context.Context, err error) {
	logger := klog.FromContext(ctx)
	if err == nil {
		if p.failures > 0 {
			logger.Info("Successfully read pods from URL", "url", redacted(p.s.url))
		}
		p.failures = 0
		return
	}
	p.failures++
	switch {
	case p.failures < maxLoggedFailures:
		logger.Info("Failed to read pods from URL", "url", redacted(p.s.url), "err", err)
	case p.failures == maxLoggedFailures:
		logger.Info("Failed to read pods from URL, further failures are logged at -v=4", "url", redacted(p.s.url), "err", err)
	default:
		logger.V(4).Info("Failed to read pods from URL again", "url", redacted(p.s.url), "err", err)
	}
}

// poll makes one request. On failure, the pods of the previous answer stay
// desired.
func (p *poller) poll(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.s.url.String(), nil)
	if err != nil {
		return errors.New("the manifest URL cannot be asked")
	}
	for name, values := range p.s.o.URLHeader {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	if p.tag != "" {
		req.Header.Set("If-None-Match", p.tag)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return withoutURL(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotModified && p.tag != "" {
		return nil
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the server answered %s", resp.Status)
	}
	data, err := readAll(resp.Body)
	if err != nil {
		return withoutURL(err)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		// A valid answer without pods.
		p.tag, p.digest = "", [sha256.Size]byte{}
		p.s.replace(ctx, HTTP, nil)
		return errors.New("the server answered with an empty body")
	}
	digest := sha256.Sum256(data)
	if digest == p.digest {
		return nil
	}
	pods, err := p.decode(ctx, data)
	if err != nil {
		return err
	}
	p.digest, p.tag = digest, resp.Header.Get("ETag")
	p.s.replace(ctx, HTTP, pods)
	return nil
}

// decode decodes a pod or a list of pods, all of which must be valid.
func (p *poller) decode(ctx context.Context, data []byte) ([]*corev1.Pod, error) {
	m, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("couldn't parse the answer: %w", err)
	}
	for i, pod := range m.pods {
		if err := p.s.rules.complete(pod, origin{node: p.s.o.NodeName, url: p.s.url.String()}); err != nil {
			if m.list {
				err = fmt.Errorf("items[%d]: %w", i, err)
			}
			return nil, fmt.Errorf("invalid pod: %w", err)
		}
	}
	if len(m.warnings) > 0 {
		klog.FromContext(ctx).Info("Ignoring invalid fields of manifest from URL", "url", redacted(p.s.url), "warnings", m.warnings)
	}
	return m.pods, nil
}

// checkRedirect removes the configured headers, which may be secrets, on redirects
// to other hosts and to unencrypted connections.
func (s *Sources) checkRedirect(req *http.Request, via []*http.Request) error {
	switch first := via[0].URL; {
	case len(via) >= maxRedirects:
		return fmt.Errorf("it was redirected %d times", maxRedirects)
	case first.Scheme == "https" && req.URL.Scheme != "https":
		return errors.New("it was redirected from https to http")
	case req.URL.Host != first.Host:
		for name := range s.o.URLHeader {
			req.Header.Del(name)
		}
		req.Header.Del("If-None-Match")
	}
	return nil
}

// redacted returns the URL without parts that may be secret.
func redacted(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// withoutURL returns the error without the URL that net/http adds to it.
func withoutURL(err error) error {
	var quoted *url.Error
	if errors.As(err, &quoted) {
		return quoted.Err
	}
	return err
}
