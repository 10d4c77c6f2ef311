package metrics_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	testingclock "k8s.io/utils/clock/testing"

	"svc.dev/svc/svclet/server/metrics"
)

func TestMountsOfImagesAreCounted(t *testing.T) {
	m := metrics.New("node-1", testingclock.NewFakePassiveClock(time.Unix(1_800_000_000, 0)))
	m.ImagesMounted(0, errors.New("no space"))
	m.ImagesMounted(2, nil)
	m.ImagesMounted(1, errors.New("no space"))
	m.ImagesMounted(3, errors.New("rpc error: code = Unknown desc = ImageVolumeMountFailed: no such image"))
	want := `
# HELP kubelet_image_volume_mounted_errors_total [ALPHA] Number of failed image volume mounts.
# TYPE kubelet_image_volume_mounted_errors_total counter
kubelet_image_volume_mounted_errors_total 3
# HELP kubelet_image_volume_mounted_succeed_total [ALPHA] Number of successful image volume mounts.
# TYPE kubelet_image_volume_mounted_succeed_total counter
kubelet_image_volume_mounted_succeed_total 2
# HELP kubelet_image_volume_requested_total [ALPHA] Number of requested image volumes.
# TYPE kubelet_image_volume_requested_total counter
kubelet_image_volume_requested_total 6
`
	if err := testutil.GatherAndCompare(m.Gatherer(), strings.NewReader(want),
		"kubelet_image_volume_mounted_errors_total", "kubelet_image_volume_mounted_succeed_total", "kubelet_image_volume_requested_total"); err != nil {
		t.Error(err)
	}
}
