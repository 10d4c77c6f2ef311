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
	for want, test := range map[string]struct {
		slow     string // what the call of the journal that takes long begins with
		services []string
	}{
		"\nfailed to read the journal: it took more than 30s\n":  {"--utc", []string{"sshd"}},
		"\nfailed to get logs for sshd: it took more than 30s\n": {"--unit=sshd", []string{"sshd", "b"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &Server{parts: Parts{Journal: func(ctx context.Context, args []string, out io.Writer) error {
				if args[0] != test.slow { // whether there are entries
					_, err := out.Write([]byte("x"))
					return err
				}
				<-ctx.Done()
				return errors.New("signal: killed")
			}}}
			began := time.Now()
			answer := httptest.NewRecorder()
			s.serviceLogs(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), &logQuery{services: test.services})
			if took := time.Since(began); took != queryTimeout {
				t.Errorf("it took %v", took)
			}
			if got := answer.Body.String(); got != want {
				t.Errorf("answered %q, want %q", got, want)
			}
		})
	}
}
