package svclet

import (
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/server/metrics"
)

func TestARateLimitHoldsForAllButHeartbeatsAndEvents(t *testing.T) {
	for _, limited := range []bool{false, true} {
		c := &rest.Config{Host: "http://localhost"}
		if limited {
			c.QPS, c.Burst = 5, 7
		}
		a, err := connect(c, clock.RealClock{})
		if err != nil {
			t.Fatal(err)
		}
		if has := a.core.GetRateLimiter() != nil; has != limited {
			t.Errorf("the limit of core is there: %t, want %t", has, limited)
		}
		if a.beats.GetRateLimiter() != nil || a.coordination.GetRateLimiter() != nil {
			t.Error("heartbeats are limited")
		}
	}
}

func TestProtobufGoesByTheNameThatEveryServerKnows(t *testing.T) {
	for named, want := range map[string]string{
		"": "application/vnd.kubernetes.protobuf", "application/vnd.svc.protobuf": "application/vnd.kubernetes.protobuf",
		"application/vnd.kubernetes.protobuf": "application/vnd.kubernetes.protobuf", "application/json": "application/json",
	} {
		if got := wireType(named); got != want {
			t.Errorf("%q goes as %q, want %q", named, got, want)
		}
	}
}

func TestTheRuntimeIsLookedAtOnceInEachSyncFrequency(t *testing.T) {
	for frequency, want := range map[time.Duration]time.Duration{
		config.Default().SyncFrequency.Duration: time.Minute, 10 * time.Second: 10 * time.Second, time.Millisecond: time.Second,
	} {
		c := config.Default()
		c.SyncFrequency.Duration = frequency
		a := &Agent{Config: Config{Configuration: c}, metrics: metrics.New("node")}
		if got := a.runtimeOptions().CheckPeriod; got != want {
			t.Errorf("with %s it is looked at each %s, want %s", frequency, got, want)
		}
	}
}

func TestTheVersionOfARuntimeIsItsNumbers(t *testing.T) {
	for text, want := range map[string]string{
		"1.6.20~ds1": "1.6.20", "v2.1.0-rc.1": "2.1.0-rc.1", "1.7": "1.7", "unknown": "unknown", "": "",
	} {
		if got := numbers(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
