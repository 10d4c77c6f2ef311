package inprocess

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// Every test runs in a synctest bubble, which fails if a goroutine is left: so each
// test also shows that its request ends.

func get(ctx context.Context, t *testing.T, handler http.HandlerFunc) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://in-process/api/v1/pods?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	return Transport{Handler: handler}.RoundTrip(req)
}

func mustGet(ctx context.Context, t *testing.T, handler http.HandlerFunc) *http.Response {
	t.Helper()
	resp, err := get(ctx, t, handler)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestAResponseHasStatusHeaderAndBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resp := mustGet(t.Context(), t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Path", r.RequestURI)
			w.WriteHeader(http.StatusTeapot)
			w.Header().Set("X-Late", "not sent")
			w.WriteHeader(http.StatusOK)
			_, _ = io.WriteString(w, "short and stout")
		})
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusTeapot || string(body) != "short and stout" {
			t.Errorf("got %s %q", resp.Status, body)
		}
		if got := resp.Header.Get("X-Path"); got != "/api/v1/pods?watch=1" {
			t.Errorf("the handler saw %q", got)
		}
		if resp.Header.Get("X-Late") != "" {
			t.Error("a header was sent that was set after the status")
		}
	})
}

func TestAHandlerThatWritesNothingRespondsWith200(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resp := mustGet(t.Context(), t, func(http.ResponseWriter, *http.Request) {})
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || len(body) > 0 || err != nil {
			t.Errorf("got %s %q %v", resp.Status, body, err)
		}
	})
}

func TestAWatchDeliversEachEventAsItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := make(chan string)
		resp := mustGet(t.Context(), t, func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			for event := range next {
				_, _ = io.WriteString(w, event)
				w.(http.Flusher).Flush()
			}
		})
		defer resp.Body.Close()
		for _, event := range []string{"added", "gone!"} {
			next <- event
			got := make([]byte, len(event))
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != event {
				t.Fatalf("read %q, %v; want %q", got, err, event)
			}
		}
		close(next)
		if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
			t.Errorf("after the last event: %q, %v", rest, err)
		}
	})
}

func TestCancellationEndsTheHandlerAndTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		resp := mustGet(ctx, t, func(w http.ResponseWriter, r *http.Request) {
			defer close(ended)
			//nolint:staticcheck // what k8s.io/apiserver waits for.
			gone := w.(http.CloseNotifier).CloseNotify()
			w.(http.Flusher).Flush()
			<-gone
			<-r.Context().Done()
		})
		defer resp.Body.Close()
		cancel()
		<-ended
		if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) {
			t.Errorf("reading a canceled body: %v", err)
		}
	})
}

func TestClosingTheBodyEarlyEndsAHandlerThatStillWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		result := make(chan error, 1)
		resp := mustGet(t.Context(), t, func(w http.ResponseWriter, r *http.Request) {
			for {
				if _, err := io.WriteString(w, "more"); err != nil {
					<-r.Context().Done()
					result <- err
					return
				}
			}
		})
		if _, err := io.ReadFull(resp.Body, make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		// The server's log of errors tells by this error that the client has gone.
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("the handler's write returned %v", err)
		}
	})
}

func TestARequestCancelledBeforeItsResponseLeavesNoHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := get(ctx, t, func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			// As the timeout filter does: it responds to a client that has disconnected.
			_, _ = io.WriteString(w, "too late")
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAPanicBeforeTheResponseIs500(t *testing.T) {
	for name, panicked := range map[string]any{"a bug": "nil pointer", "an abort": http.ErrAbortHandler} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				resp := mustGet(t.Context(), t, func(http.ResponseWriter, *http.Request) { panic(panicked) })
				defer resp.Body.Close()
				if resp.StatusCode != http.StatusInternalServerError {
					t.Errorf("got %s", resp.Status)
				}
				if _, err := io.ReadAll(resp.Body); err == nil || !strings.Contains(err.Error(), "/api/v1/pods panicked") {
					t.Errorf("the body ends with %v", err)
				}
			})
		})
	}
}

func TestAPanicDuringAResponseEndsTheBodyWithAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resp := mustGet(t.Context(), t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "half")
			panic("a bug")
		})
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); string(body) != "half" || err == nil {
			t.Errorf("got %q, %v: the reader must not take a half for the whole", body, err)
		}
	})
}

func TestLargeBodiesAreCompleteInBothDirections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB
		body := &closable{Reader: bytes.NewReader(sent)}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://in-process/", body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := Transport{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, r.Body)
		})}.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%d bytes came back of %d: %v", len(got), len(sent), err)
		}
		synctest.Wait()
		if !body.closed {
			t.Error("the request's body was not closed, as a RoundTripper must")
		}
	})
}

type closable struct {
	io.Reader
	closed bool
}

func (c *closable) Close() error {
	c.closed = true
	return nil
}

func TestTheChainSetsTheServersUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resp := mustGet(t.Context(), t, func(w http.ResponseWriter, r *http.Request) {
			Chain(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				user, _ := request.UserFrom(r.Context())
				info, _ := request.RequestInfoFrom(r.Context())
				_, _ = io.WriteString(w, user.GetName()+" "+info.Verb+" "+info.Resource)
			})).ServeHTTP(w, r)
		})
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); string(body) != "system:apiserver watch pods" || err != nil {
			t.Errorf("got %q, %v", body, err)
		}
	})
}

func TestClientsHaveNoRateLimit(t *testing.T) {
	if config := ClientConfig(http.NotFoundHandler()); config.QPS >= 0 || config.RateLimiter != nil {
		t.Errorf("QPS is %v, the rate limiter %v", config.QPS, config.RateLimiter)
	}
}
