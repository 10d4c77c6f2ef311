package main

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"svc.dev/svc/internal/progress"
)

func TestWhatIsWaitedForIsReportedUntilACertificateIsSigned(t *testing.T) {
	clock := testclock.NewFakeClock(time.Unix(0, 0))
	reader, errOut := io.Pipe()
	lines := bufio.NewReader(reader)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		clock.Step(progress.Interval)
		if line, err := lines.ReadString('\n'); err != nil || line != "create: still waiting for the certificate (2s)\n" {
			t.Errorf("%q, %v", line, err)
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	cmd := newUserCreate(clock)
	cmd.SetArgs([]string{"ann", "--svcconfig=" + connectionFile(t, server.URL)})
	cmd.SetOut(io.Discard)
	cmd.SetErr(errOut)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.ExecuteContext(t.Context()); err == nil {
		t.Error("a refused request is no error")
	}
}
