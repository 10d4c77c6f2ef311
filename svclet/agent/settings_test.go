package agent

import (
	"testing"
	"time"

	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/server/metrics"
)

func TestTheRuntimeIsListedOncePerSyncFrequency(t *testing.T) {
	for frequency, want := range map[time.Duration]time.Duration{
		config.Default().SyncFrequency.Duration: time.Minute, 10 * time.Second: 10 * time.Second, time.Millisecond: time.Second,
	} {
		c := config.Default()
		c.SyncFrequency.Duration = frequency
		if got := runtimeOptions(c, metrics.New("node", clock.RealClock{}), clock.RealClock{}).CheckPeriod; got != want {
			t.Errorf("syncFrequency %s: the runtime is listed each %s, want %s", frequency, got, want)
		}
	}
}

func TestRuntimeVersionIsReportedWithoutSuffixes(t *testing.T) {
	for text, want := range map[string]string{
		"1.6.20~ds1": "1.6.20", "v2.1.0-rc.1": "2.1.0-rc.1", "1.7": "1.7", "unknown": "unknown", "": "",
	} {
		if got := versionNumbers(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
