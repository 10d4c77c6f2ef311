package scheduler

import (
	"reflect"
	"strings"
	"testing"

	"svc.dev/svc/controllers/scheduler/decision"
)

func TestTheShapeOfVolumesNeedsItsGate(t *testing.T) {
	own := []decision.ShapePoint{{Utilization: 0, Score: 100}}
	profiles := func() []*decision.Profile {
		return []*decision.Profile{{SchedulerName: "plain"}, {SchedulerName: "shaped", VolumeShape: own}}
	}
	err := scoreVolumes(profiles(), false)
	if err == nil || !strings.Contains(err.Error(), "--scheduler-config: profile shaped: ") || !strings.Contains(err.Error(), "--feature-gates=VolumeCapacityPriority=true") {
		t.Error(err)
	}
	without := profiles()[:1]
	if err := scoreVolumes(without, false); err != nil || without[0].VolumeShape != nil {
		t.Error(err, without[0].VolumeShape)
	}
	with := profiles()
	if err := scoreVolumes(with, true); err != nil {
		t.Fatal(err)
	}
	if got := with[0].VolumeShape; !reflect.DeepEqual(got, decision.DefaultVolumeShape()) {
		t.Errorf("got %v of a profile without a shape", got)
	}
	if got := with[1].VolumeShape; !reflect.DeepEqual(got, own) {
		t.Errorf("got %v, want its own %v", got, own)
	}
}
