package metrics_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"svc.dev/svc/svclet/server/metrics"
)

func TestTheAgentsOwnWorkIsMeasured(t *testing.T) {
	m := metrics.New("node-1", testingclock.NewFakePassiveClock(time.Unix(1_800_000_000, 0)))
	m.Relisted(time.Second, 0)
	m.Relisted(time.Second, time.Minute)
	m.PodSynced("create", 2*time.Second)
	m.CgroupOperation("update", 3*time.Second)
	m.VolumeOperation("kubernetes.io/secret", "volume_mount", false, 4*time.Second, nil)
	m.VolumeOperation("kubernetes.io/csi:d", "volume_mount", true, 5*time.Second, errors.New("away"))
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	for _, family := range families {
		for _, series := range family.GetMetric() {
			var labels []string
			for _, l := range series.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			if series.GetHistogram().GetSampleCount() > 0 {
				sums[family.GetName()+" "+strings.Join(labels, " ")] = series.GetHistogram().GetSampleSum()
			}
		}
	}
	for series, want := range map[string]float64{
		"kubelet_pleg_relist_duration_seconds ":                         2,
		"kubelet_pleg_relist_interval_seconds ":                         60,
		"kubelet_pod_worker_duration_seconds operation_type=create":     2,
		"kubelet_cgroup_manager_duration_seconds operation_type=update": 3,
		"storage_operation_duration_seconds migrated=false operation_name=volume_mount status=success volume_plugin=kubernetes.io/secret":    4,
		"storage_operation_duration_seconds migrated=true operation_name=volume_mount status=fail-unknown volume_plugin=kubernetes.io/csi:d": 5,
	} {
		if sums[series] != want {
			t.Errorf("%s: the sum is %v, want %v", series, sums[series], want)
		}
	}
}
