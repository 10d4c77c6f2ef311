package rewrite

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// upper is a Body that holds each piece back until it is flushed or closed, and then
// writes it in upper case.
type upper struct {
	to   io.Writer
	held []byte
}

func (u *upper) Write(p []byte) (int, error) {
	u.held = append(u.held, p...)
	return len(p), nil
}

func (u *upper) Flush() error {
	_, err := u.to.Write(bytes.ToUpper(u.held))
	u.held = nil
	return err
}

func (u *upper) Close() error { return u.Flush() }

// serve returns the response to a request that handler serves, and the statuses with
// which the choice was made.
func serve(t *testing.T, change bool, handler http.HandlerFunc) (w *httptest.ResponseRecorder, statuses []int) {
	t.Helper()
	w = httptest.NewRecorder()
	Serve(w, httptest.NewRequest(http.MethodGet, "/", nil), handler, func(to io.Writer, status int, _ http.Header) Body {
		statuses = append(statuses, status)
		if !change {
			return nil
		}
		return &upper{to: to}
	})
	return w, statuses
}

func TestABodyIsChangedToItsEndAndHasNoLength(t *testing.T) {
	w, statuses := serve(t, true, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "2")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "a")
		_, _ = io.WriteString(w, "b")
	})
	if w.Body.String() != "AB" || w.Code != http.StatusAccepted || w.Header().Get("Content-Length") != "" {
		t.Errorf("%d %q %v", w.Code, w.Body, w.Header())
	}
	if len(statuses) != 1 || statuses[0] != http.StatusAccepted {
		t.Errorf("chosen for %v, want once for 202", statuses)
	}
}

func TestABodyWithoutAChangeStays(t *testing.T) {
	w, statuses := serve(t, false, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1")
		_, _ = io.WriteString(w, "a")
	})
	if w.Body.String() != "a" || w.Header().Get("Content-Length") != "1" {
		t.Errorf("%q %v", w.Body, w.Header())
	}
	if len(statuses) != 1 || statuses[0] != http.StatusOK {
		t.Errorf("chosen for %v, want once for 200", statuses)
	}
}

func TestAFlushWritesWhatIsHeldBack(t *testing.T) {
	serve(t, true, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "a")
		w.(http.Flusher).Flush()
		if got := recorder(w).Body.String(); got != "A" {
			t.Errorf("after Flush: %q", got)
		}
	})
}

func TestAfterAPanicTheRestIsNotWritten(t *testing.T) {
	w := httptest.NewRecorder()
	func() {
		defer func() { _ = recover() }()
		Serve(w, httptest.NewRequest(http.MethodGet, "/", nil), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "a")
			panic("broken")
		}), func(to io.Writer, _ int, _ http.Header) Body { return &upper{to: to} })
	}()
	if w.Body.Len() != 0 {
		t.Errorf("%q was written", w.Body)
	}
}

// recorder returns the writer within all decorators.
func recorder(w http.ResponseWriter) *httptest.ResponseRecorder {
	for {
		if r, ok := w.(*httptest.ResponseRecorder); ok {
			return r
		}
		w = w.(interface{ Unwrap() http.ResponseWriter }).Unwrap()
	}
}
