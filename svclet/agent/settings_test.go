package agent

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/node"
	"svc.dev/svc/svclet/nodeconfig"
	"svc.dev/svc/svclet/server/metrics"
)

func TestTheRuntimeIsListedOncePerSyncFrequency(t *testing.T) {
	for frequency, want := range map[time.Duration]time.Duration{
		config.Default().SyncFrequency.Duration: time.Minute, 10 * time.Second: 10 * time.Second, time.Millisecond: time.Second,
	} {
		c := config.Default()
		c.SyncFrequency.Duration = frequency
		if got := runtimeOptions(c, metrics.New("node", clock.RealClock{}), nil, clock.RealClock{}).CheckPeriod; got != want {
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

func TestWhatHardEvictionThresholdsKeepFreeIsNotAllocatable(t *testing.T) {
	c := config.Default()
	thresholds, err := readThresholds(c)
	if err != nil {
		t.Fatal(err)
	}
	machine := node.Machine{Memory: 1 << 30, Storage: 100 << 30}
	kept := resources{machine: machine, reserved: nodeconfig.Reservations{System: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("28Mi")}}}
	base := common{Config: Config{Configuration: c}, thresholds: thresholds}
	if got := reserved(base, kept); got.Memory().String() != "128Mi" || got.StorageEphemeral().String() != "10Gi" {
		t.Errorf("%s of memory and %s of storage are reserved", got.Memory(), got.StorageEphemeral())
	}
	base.AllocatableIgnoresEviction = true
	if got := reserved(base, kept); got.Memory().String() != "28Mi" || !got.StorageEphemeral().IsZero() {
		t.Errorf("without eviction %s of memory and %s of storage are reserved", got.Memory(), got.StorageEphemeral())
	}
}
