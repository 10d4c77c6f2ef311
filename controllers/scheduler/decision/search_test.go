package decision

import (
	"context"
	"strings"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// newSearch returns a snapshot with a device of the node a, and a claim of it.
func newSearch(limit *time.Duration) *Snapshot {
	s := NewSnapshot()
	p := DefaultProfile("")
	p.DeviceSearchTimeout = limit
	s.SetProfiles(p)
	for _, line := range []string{"node a", "deviceclass gpu", "devices a gpu-0=large", "resourceclaim one class=gpu"} {
		command, rest, _ := strings.Cut(line, " ")
		s.run(command, rest)
	}
	return s
}

func TestASearchForDevicesThatTakesTooLongIsAnError(t *testing.T) {
	const why = "node a: timed out trying to allocate devices"
	for _, test := range []struct {
		rule  string
		limit *time.Duration
		node  string
	}{
		{"without a limit", nil, "a"},
		{"zero is no limit", ptr.To(time.Duration(0)), "a"},
		{"within the limit", ptr.To(time.Hour), "a"},
		{"beyond the limit", ptr.To(time.Nanosecond), ""},
	} {
		t.Run(test.rule, func(t *testing.T) {
			for _, nominated := range []string{"", " nominated=a"} {
				s := newSearch(test.limit)
				d := s.Decide(parsePod("web device=one"+nominated), nil)
				if d.Node != test.node || (d.Err == nil) != (test.node != "") || d.Err != nil && d.Err.Error() != why {
					t.Errorf("got node %q, %v", d.Node, d.Err)
				}
			}
		})
	}
}

func TestPreemptionEndsIfASearchForDevicesTakesTooLong(t *testing.T) {
	s := newSearch(ptr.To(time.Nanosecond))
	s.run("node", "a cpu=1")
	s.run("pod", "low on=a cpu=1")
	pod := parsePod("high device=one cpu=1 priority=10")
	d := s.Decide(pod, nil)
	if d.Node != "" || d.Err != nil {
		t.Fatalf("got %+v", d)
	}
	if p := s.Preempt(pod, &d, nil); p.Node != "" || p.Message != "node a: timed out trying to allocate devices" {
		t.Errorf("got %+v", p)
	}
}

func TestSearchesForDevicesEndWithTheRun(t *testing.T) {
	s := newSearch(nil)
	ctx, stop := context.WithCancel(t.Context())
	s.During(ctx)
	stop()
	if d := s.Decide(parsePod("web device=one"), nil); d.Node != "" || d.Err == nil {
		t.Errorf("got %+v", d)
	}
}

func TestRangesOfCapacityMayBeFractions(t *testing.T) {
	for _, test := range []struct {
		fractions bool
		devices   int // so many pods that want 0.3 of the device get a part
	}{{true, 2}, {false, 1}} { // each gets 0.5, or all
		s := newSearch(nil)
		p := *s.first
		p.FractionalCapacity = test.fractions
		s.SetProfiles(&p)
		slice := parseDevices("a link=fast")
		quantity := func(text string) *resource.Quantity { return ptr.To(resource.MustParse(text)) }
		slice.Spec.Devices[0].AllowMultipleAllocations = ptr.To(true)
		slice.Spec.Devices[0].Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"share": {
			Value: resource.MustParse("1"), RequestPolicy: &resourcev1.CapacityRequestPolicy{
				Default: quantity("1"), ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: quantity("250m"), Step: quantity("250m")},
			},
		}}
		s.SetResourceSlice(slice)
		got := 0
		for _, name := range []string{"x", "y", "z"} {
			claim := parseResourceClaim(name + " class=gpu")
			claim.Spec.Devices.Requests[0].Exactly.Capacity = &resourcev1.CapacityRequirements{
				Requests: map[resourcev1.QualifiedName]resource.Quantity{"share": resource.MustParse("300m")},
			}
			s.SetResourceClaim(claim)
			pod := parsePod("pod-" + name + " device=" + name)
			d := s.Decide(pod, nil)
			if d.Node != "" {
				got++
				s.AssumeDevices(pod, d.Devices)
			}
		}
		if got != test.devices {
			t.Errorf("with fractions %t, %d pods get a part of the device, want %d", test.fractions, got, test.devices)
		}
	}
}
