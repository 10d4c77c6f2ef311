package stats_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestTwoPodsOfOneName: both are measured, so that either can be evicted by what it uses, and
// metrics, which have no UID, are those of the newer one.
func TestTwoPodsOfOneName(t *testing.T) {
	f := &fake{clock: clocktesting.NewFakeClock(time.Unix(5000, 0)), twin: true, noSandboxes: true}
	p := provider(t, f, false)
	var got []string
	for _, pod := range summary(t, f, p, false).Pods {
		got = append(got, fmt.Sprintf("%s %d", pod.PodRef.UID, *pod.Memory.WorkingSetBytes))
	}
	if diff := cmp.Diff([]string{"web-uid 3000", "twin-uid 7000"}, got); diff != "" {
		t.Errorf("the memory of pods (-want +got):\n%s", diff)
	}
	want := "# HELP pod_memory_working_set_bytes [STABLE] Current working set of the pod in bytes\n# TYPE pod_memory_working_set_bytes gauge\n" +
		`pod_memory_working_set_bytes{namespace="default",pod="web"} 7000 5000200` + "\n"
	if err := testutil.CollectAndCompare(p.Resource(), strings.NewReader(want), "pod_memory_working_set_bytes"); err != nil {
		t.Error(err)
	}
	if series, err := testutil.GatherAndCount(registryOf(t, p.Cadvisor()), "container_memory_working_set_bytes"); err != nil || series != 2 {
		t.Errorf("%d series of memory, %v, want those of the newer pod and its container", series, err)
	}
}

func registryOf(t *testing.T, c prometheus.Collector) *prometheus.Registry {
	t.Helper()
	registry := prometheus.NewRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	return registry
}

func TestARuntimeWithoutSandboxStatisticsIsNotLoggedAsAnError(t *testing.T) {
	f := &fake{clock: clocktesting.NewFakeClock(time.Unix(5000, 0)), noSandboxes: true}
	p := provider(t, f, true)
	summary(t, f, p, true) // two samples, so that the next one does not wait
	f.clock.Step(time.Minute)
	var lines []string
	logger := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	asked := f.asked
	if _, err := p.Summary(klog.NewContext(t.Context(), logger), true); err != nil || f.asked == asked {
		t.Fatalf("asked %d times, %v", f.asked-asked, err)
	}
	for _, line := range lines {
		if strings.Contains(line, "ListPodSandboxStats") {
			t.Errorf("logs %s", line)
		}
	}
}
