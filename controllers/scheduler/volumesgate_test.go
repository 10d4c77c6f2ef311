package scheduler

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"svc.dev/svc/controllers/scheduler/decision"
)

func TestTheShapeOfVolumesNeedsItsGate(t *testing.T) {
	own := []decision.ShapePoint{{Utilization: 0, Score: 100}}
	profiles := func() []*decision.Profile {
		return []*decision.Profile{{SchedulerName: "plain"}, {SchedulerName: "shaped", VolumeShape: own}}
	}
	err := scoreVolumes(profiles(), false, false)
	if err == nil || !strings.Contains(err.Error(), "--scheduler-config: profile shaped: ") || !strings.Contains(err.Error(), "--feature-gates=VolumeCapacityPriority=true") {
		t.Error(err)
	}
	without := profiles()[:1]
	if err := scoreVolumes(without, false, false); err != nil || without[0].VolumeShape != nil {
		t.Error(err, without[0].VolumeShape)
	}
	for _, test := range []struct {
		volumes, capacity bool
		shape             []decision.ShapePoint // of a profile without one
	}{
		{true, false, decision.DefaultVolumeShape()},
		{false, true, decision.DefaultCapacityShape()},
		{true, true, decision.DefaultCapacityShape()},
	} {
		with := profiles()
		if err := scoreVolumes(with, test.volumes, test.capacity); err != nil {
			t.Fatal(err)
		}
		if got := with[0].VolumeShape; !reflect.DeepEqual(got, test.shape) {
			t.Errorf("%+v: got %v of a profile without a shape", test, got)
		}
		if got := with[1].VolumeShape; !reflect.DeepEqual(got, own) {
			t.Errorf("%+v: got %v, want its own %v", test, got, own)
		}
		if with[0].ScoreCapacity != test.capacity {
			t.Errorf("%+v: capacity is scored: %t", test, with[0].ScoreCapacity)
		}
	}
}

func TestTheTimeOfSearchesForDevicesNeedsItsGate(t *testing.T) {
	profiles := func() []*decision.Profile {
		return []*decision.Profile{{SchedulerName: "plain"}, {SchedulerName: "unlimited", DeviceSearchTimeout: new(time.Duration)}}
	}
	err := limitSearches(profiles(), false)
	if err == nil || !strings.Contains(err.Error(), "--scheduler-config: profile unlimited: ") || !strings.Contains(err.Error(), searchGate) {
		t.Error(err)
	}
	if without := profiles()[:1]; limitSearches(without, false) != nil || without[0].DeviceSearchTimeout != nil {
		t.Errorf("searches are limited to %v without the gate", without[0].DeviceSearchTimeout)
	}
	with := profiles()
	if err := limitSearches(with, true); err != nil {
		t.Fatal(err)
	}
	if *with[0].DeviceSearchTimeout != decision.DefaultDeviceSearchTimeout || *with[1].DeviceSearchTimeout != 0 {
		t.Errorf("got %v and %v", *with[0].DeviceSearchTimeout, *with[1].DeviceSearchTimeout)
	}
}
