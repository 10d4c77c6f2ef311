package source

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

// page is a server whose answer the test sets.
type page struct {
	*httptest.Server
	mu      sync.Mutex
	answer  http.HandlerFunc
	headers []http.Header
}

func newPage(t *testing.T) *page {
	p := &page{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		answer := p.answer
		p.headers = append(p.headers, r.Header.Clone())
		p.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *page) set(answer http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }
}

// polled is a poller without its loop.
func polled(t *testing.T, url string, header http.Header) *poller {
	s, err := New(Options{NodeName: "n", URL: url, URLHeader: header, Clock: testclock.NewFakeClock(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	s.updates = make(chan Update, 100)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &poller{s: s, client: &http.Client{Transport: transport, CheckRedirect: s.checkRedirect}}
}

func TestPodsOfAURL(t *testing.T) {
	p := newPage(t)
	p.set(text(web))
	r := run(t, Options{URL: p.URL, HTTPCheckFrequency: 5 * time.Millisecond, URLHeader: http.Header{"X-Key": {"a", "b"}}})
	r.expect("http set web-n ready")
	p.set(text(`{"apiVersion":"v1","kind":"PodList","items":[
		{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}},
		{"metadata":{"name":"b"},"spec":{"containers":[{"name":"c","image":"i"}]}}]}`))
	r.expect("http set a-n b-n removed web-n ready")
	p.set(text(""))
	r.expect("http removed a-n b-n ready")
	p.mu.Lock()
	defer p.mu.Unlock()
	if got := p.headers[0]["X-Key"]; len(got) != 2 || got[0] != "a" || got[1] != "b" {
		t.Errorf("header %v", got)
	}
}

func TestAFailedPollKeepsThePods(t *testing.T) {
	p := newPage(t)
	p.set(text(web))
	poller := polled(t, p.URL+"/x?token=secret", nil)
	if err := poller.poll(t.Context()); err != nil || !poller.s.Ready() {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		says   string
	}{
		"an error":      {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTeapot) }, "418"},
		"half":          {text(web[:40]), "couldn't parse"},
		"not modified":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }, "304"},
		"a wrong item":  {text(`{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"a"}}]}`), "items[0]: spec.containers: Required value"},
		"no end":        {endless, "longer than 10 MiB"},
		"a broken line": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		p.set(c.answer)
		err := poller.poll(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
		if len(poller.s.Pods()) != 1 {
			t.Fatalf("%s: its pod is gone", name)
		}
	}
}

func endless(w http.ResponseWriter, r *http.Request) {
	line := []byte("# " + strings.Repeat("x", 1<<16) + "\n")
	for r.Context().Err() == nil {
		if _, err := w.Write(line); err != nil {
			return
		}
	}
}

func TestAPollHasATimeout(t *testing.T) {
	p := newPage(t)
	p.set(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "apiVersion: v1\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	poller := polled(t, p.URL, nil)
	poller.client.Timeout = 20 * time.Millisecond
	if err := poller.poll(t.Context()); err == nil || !strings.Contains(err.Error(), "Timeout") && !strings.Contains(err.Error(), "deadline") {
		t.Errorf("got %v", err)
	}
}

func TestAnUnchangedAnswerIsNotDecodedAgain(t *testing.T) {
	p := newPage(t)
	answers := 0
	p.set(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") == `"1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		answers++
		w.Header().Set("ETag", `"1"`)
		fmt.Fprint(w, web)
	})
	poller := polled(t, p.URL, nil)
	for range 3 {
		if err := poller.poll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if answers != 1 || len(poller.s.updates) != 1 {
		t.Errorf("%d answers, %d updates", answers, len(poller.s.updates))
	}
}

func TestHeadersAreNotSentToOtherHosts(t *testing.T) {
	elsewhere := newPage(t)
	elsewhere.set(text(web))
	p := newPage(t)
	p.set(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) })
	poller := polled(t, p.URL, http.Header{"X-Key": {"secret"}})
	if err := poller.poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := elsewhere.headers[0].Get("X-Key"); got != "" {
		t.Errorf("the header went to another host: %s", got)
	}
	p.set(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/again", http.StatusFound) })
	if err := poller.poll(t.Context()); err == nil || !strings.Contains(err.Error(), "redirected 10 times") {
		t.Errorf("got %v", err)
	}
}

func TestRepeatedFailuresAreLoggedAtHigherVerbosity(t *testing.T) {
	s := scanning(t, t.TempDir())
	p := polled(t, "http://host/x", nil)
	for range 10 {
		p.report(s.ctx, fmt.Errorf("it failed"))
	}
	if got := s.loggedOf("it failed"); got != 4 {
		t.Errorf("told %d times: %q", got, s.log.all)
	}
	p.report(s.ctx, nil)
	p.report(s.ctx, fmt.Errorf("it failed"))
	if s.loggedOf("Successfully") != 1 || s.loggedOf("it failed") != 5 {
		t.Errorf("log: %q", s.log.all)
	}
}
