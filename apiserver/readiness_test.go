package apiserver

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	testingclock "k8s.io/utils/clock/testing"

	"svc.dev/svc/apiserver/inprocess"
)

func TestAStartThatHangsNamesTheHookAndWhy(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	asked := 0
	checks := mux.NewPathRecorderMux("test")
	healthz.InstallReadyzHandler(checks, healthz.PingHealthz, healthz.NamedCheck("poststarthook/slow", func(*http.Request) error {
		switch asked++; {
		case asked < 5:
			clock.Step(reportInterval / 2)
			return errors.New("not finished")
		default:
			return nil
		}
	}))
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	r := readiness{handler: inprocess.Chain(checks), clock: clock}
	if err := r.wait(klog.NewContext(t.Context(), logger)); err != nil {
		t.Fatal(err)
	}
	got := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
	const want = `API server is not ready yet check="poststarthook/slow" reason="not finished"`
	if strings.Count(got, want) != 1 {
		t.Errorf("log = %s\nwant once %s", got, want)
	}
}

func TestFailedChecksAreThoseOfTheAnswer(t *testing.T) {
	checks := mux.NewPathRecorderMux("test")
	healthz.InstallReadyzHandler(checks, healthz.PingHealthz,
		healthz.NamedCheck("poststarthook/rbac/roles", func(*http.Request) error { return errors.New("x") }))
	w := httptest.NewRecorder()
	checks.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	if got := failedChecks(w.Body.String()); len(got) != 1 || got[0] != "poststarthook/rbac/roles" {
		t.Errorf("failed checks = %q in\n%s", got, w.Body)
	}
}
