package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

func TestAQueryOfServicesEndsAfterItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{parts: Parts{Journal: func(ctx context.Context, args []string, out io.Writer) error {
			if args[len(args)-1] == "--output=cat" { // whether there are entries
				_, err := out.Write([]byte("x"))
				return err
			}
			<-ctx.Done()
			return errors.New("signal: killed")
		}}}
		began := time.Now()
		answer := httptest.NewRecorder()
		s.serviceLogs(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), &logQuery{services: []string{"sshd"}})
		if took := time.Since(began); took != queryTimeout {
			t.Errorf("it took %v", took)
		}
		if got, want := answer.Body.String(), "\nfailed to read the journal: it took more than 30s\n"; got != want {
			t.Errorf("answered %q, want %q", got, want)
		}
	})
}
