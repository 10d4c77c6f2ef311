package svclet

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
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

func TestReservedCPUsTakeThePlaceOfTheOthers(t *testing.T) {
	c := config.Default()
	c.KubeReserved = map[string]string{"cpu": "1", "memory": "1Gi"}
	c.SystemReserved = map[string]string{"cpu": "500m", "memory": "1Gi"}
	r, err := reservations(c)
	if err != nil {
		t.Fatal(err)
	}
	if all := r.all(); all.Cpu().MilliValue() != 1500 || all.Memory().Value() != 2<<30 {
		t.Errorf("reserved are %v", all)
	}
	c.ReservedSystemCPUs = "0,2-3"
	if r, err = reservations(c); err != nil {
		t.Fatal(err)
	}
	all := r.all()
	if _, set := r.agent[corev1.ResourceCPU]; set || all.Cpu().Value() != 3 || all.Memory().Value() != 2<<30 {
		t.Errorf("reserved are %v", all)
	}
}

func TestThePercentageOfMemoryThatIsKeptIsRead(t *testing.T) {
	for text, want := range map[string]int{"": 0, "0%": 0, "50%": 50, "100%": 100} {
		reserved := map[string]string{"memory": text}
		if text == "" {
			reserved = nil
		}
		if got, err := percentage(reserved); err != nil || got != want {
			t.Errorf("%v: %d, %v, want %d", reserved, got, err, want)
		}
	}
	if _, err := percentage(map[string]string{"memory": "half"}); err == nil {
		t.Error("half is taken for a percentage")
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
