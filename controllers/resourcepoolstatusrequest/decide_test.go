package resourcepoolstatusrequest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/internal/golden"
)

const driver = "d.example.com"

// TestScripts runs the scripts of testdata. The commands, of which the driver is d.example.com
// if none is named:
//
//	slice POOL [driver=NAME] [generation=N] [of=N] [node=NAME] [by=ATTRIBUTE] [counters=SET/COUNTER:AMOUNT,...]
//	  DEVICE [taint=EFFECT] [ATTRIBUTE=TEXT] [costs=SET/COUNTER:AMOUNT,...] [shares=CAPACITY:AMOUNT,...]
//	claim POOL/DEVICE[,...] [driver=NAME] [admin] [consumes=CAPACITY:AMOUNT,...]
//	ask [driver=NAME] [pool=NAME] [limit=N] [by=ATTRIBUTE]    prints the answer to a request
//
// A slice says that its pool has as many slices as it says ("of"), which is one by default.
func TestScripts(t *testing.T) {
	golden.Run(t, func(t *testing.T) golden.Handler {
		var published []*resourcev1.ResourceSlice
		var claims []*resourcev1.ResourceClaim
		return func(c golden.Command) string {
			switch c.Name {
			case "slice":
				slice := newSlice(t, c)
				slice.Name = fmt.Sprintf("slice-%d", len(published))
				published = append(published, slice)
			case "claim":
				claims = append(claims, newClaim(t, c.Args))
			case "ask":
				answer, complete := answerTo(newRequest(t, c.Args), published, claims, time.Unix(0, 0))
				return printed(answer, complete)
			default:
				t.Fatalf("unknown command %s", c.Name)
			}
			return ""
		}
	})
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// quantities reads NAME:AMOUNT,...
func quantities(text string) map[string]resource.Quantity {
	all := map[string]resource.Quantity{}
	for part := range strings.SplitSeq(text, ",") {
		name, amount, _ := strings.Cut(part, ":")
		all[name] = resource.MustParse(amount)
	}
	return all
}

// sets reads SET/COUNTER:AMOUNT,...
func sets(text string) map[string]map[string]resourcev1.Counter {
	all := map[string]map[string]resourcev1.Counter{}
	for name, amount := range quantities(text) {
		set, counter, _ := strings.Cut(name, "/")
		if all[set] == nil {
			all[set] = map[string]resourcev1.Counter{}
		}
		all[set][counter] = resourcev1.Counter{Value: amount}
	}
	return all
}

func newSlice(t *testing.T, c golden.Command) *resourcev1.ResourceSlice {
	slice := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Driver: driver, Pool: resourcev1.ResourcePool{Name: c.Args[0], Generation: 1, ResourceSliceCount: 1}}}
	for _, arg := range c.Args[1:] {
		switch key, value, _ := strings.Cut(arg, "="); key {
		case "driver":
			slice.Spec.Driver = value
		case "generation":
			slice.Spec.Pool.Generation = int64(number(t, value))
		case "of":
			slice.Spec.Pool.ResourceSliceCount = int64(number(t, value))
		case "node":
			slice.Spec.NodeName = &value
		case "by":
			slice.Spec.PartitionTypeAttribute = ptr.To(resourcev1.FullyQualifiedName(value))
		case "counters":
			for name, counters := range sets(value) {
				slice.Spec.SharedCounters = append(slice.Spec.SharedCounters, resourcev1.CounterSet{Name: name, Counters: counters})
			}
		default:
			t.Fatalf("unknown word %s", arg)
		}
	}
	for line := range strings.Lines(c.Body) {
		slice.Spec.Devices = append(slice.Spec.Devices, newDevice(strings.Fields(line)))
	}
	return slice
}

func newDevice(words []string) resourcev1.Device {
	device := resourcev1.Device{Name: words[0], Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}}
	for _, word := range words[1:] {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "taint":
			device.Taints = append(device.Taints, resourcev1.DeviceTaint{Key: "broken", Effect: resourcev1.DeviceTaintEffect(value)})
		case "costs":
			for name, counters := range sets(value) {
				device.ConsumesCounters = append(device.ConsumesCounters, resourcev1.DeviceCounterConsumption{CounterSet: name, Counters: counters})
			}
		case "shares":
			device.AllowMultipleAllocations, device.Capacity = ptr.To(true), map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{}
			for name, amount := range quantities(value) {
				device.Capacity[resourcev1.QualifiedName(name)] = resourcev1.DeviceCapacity{Value: amount}
			}
		default:
			device.Attributes[resourcev1.QualifiedName(key)] = resourcev1.DeviceAttribute{StringValue: &value}
		}
	}
	return device
}

func newClaim(t *testing.T, args []string) *resourcev1.ResourceClaim {
	var results []resourcev1.DeviceRequestAllocationResult
	for name := range strings.SplitSeq(args[0], ",") {
		pool, device, _ := strings.Cut(name, "/")
		results = append(results, resourcev1.DeviceRequestAllocationResult{Driver: driver, Pool: pool, Device: device})
	}
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		for i := range results {
			switch key {
			case "driver":
				results[i].Driver = value
			case "admin":
				results[i].AdminAccess = ptr.To(true)
			case "consumes":
				results[i].ConsumedCapacity = map[resourcev1.QualifiedName]resource.Quantity{}
				for name, amount := range quantities(value) {
					results[i].ConsumedCapacity[resourcev1.QualifiedName(name)] = amount
				}
			default:
				t.Fatalf("unknown word %s", arg)
			}
		}
	}
	return &resourcev1.ResourceClaim{Status: resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: results}}}}
}

func newRequest(t *testing.T, args []string) *resourcev1alpha3.ResourcePoolStatusRequest {
	request := &resourcev1alpha3.ResourcePoolStatusRequest{Spec: resourcev1alpha3.ResourcePoolStatusRequestSpec{Driver: driver}}
	for _, arg := range args {
		switch key, value, _ := strings.Cut(arg, "="); key {
		case "driver":
			request.Spec.Driver = value
		case "pool":
			request.Spec.PoolName = &value
		case "limit":
			request.Spec.Limit = ptr.To(int32(number(t, value)))
		case "by":
			request.Spec.DefaultPartitionTypeAttribute = &value
		default:
			t.Fatalf("unknown word %s", arg)
		}
	}
	return request
}

// printed returns a status as text, and whether it is complete.
func printed(s *resourcev1alpha3.ResourcePoolStatusRequestStatus, complete bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d found; %s=%s %s: %s", *s.PoolCount, s.Conditions[0].Type, s.Conditions[0].Status, s.Conditions[0].Reason, s.Conditions[0].Message)
	if !complete {
		b.WriteString("; waits for slices")
	}
	for _, p := range s.Pools {
		fmt.Fprintf(&b, "\n%s/%s generation %d", p.Driver, p.PoolName, p.Generation)
		if p.NodeName != nil {
			fmt.Fprintf(&b, " of %s", *p.NodeName)
		}
		if p.TotalDevices != nil {
			fmt.Fprintf(&b, ": slices %d, devices %d, allocated %d, available %d, unavailable %d", *p.ResourceSliceCount, *p.TotalDevices, *p.AllocatedDevices, *p.AvailableDevices, *p.UnavailableDevices)
		}
		for _, t := range p.PartitionSummary {
			fmt.Fprintf(&b, "\n  %s=%s: %d of %d", t.Attribute, t.Type, *t.Allocatable, *t.Total)
		}
		if shared := p.ShareableSummary; shared != nil {
			fmt.Fprintf(&b, "\n  shared: %d free, %d partly", *shared.FullyAvailableDevices, *shared.PartiallyAvailableDevices)
			for _, c := range shared.Capacity {
				fmt.Fprintf(&b, "; %s %s - %s = %s", c.Name, c.Total, c.Consumed, c.Available)
			}
		}
		if p.ValidationError != nil {
			fmt.Fprintf(&b, "\n  %s", *p.ValidationError)
		}
	}
	return b.String()
}

func TestAPoolHasNoMoreThan32EntriesAndShortErrors(t *testing.T) {
	slice := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{
		Driver: driver, Pool: resourcev1.ResourcePool{Name: strings.Repeat("a", 300), ResourceSliceCount: 1},
		SharedCounters:         []resourcev1.CounterSet{{Name: "s", Counters: map[string]resourcev1.Counter{"c": {Value: resource.MustParse("100")}}}},
		PartitionTypeAttribute: ptr.To(resourcev1.FullyQualifiedName(driver + "/type")),
	}}
	shared := map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{}
	for i := range maxEntries + 1 {
		shared[resourcev1.QualifiedName(fmt.Sprintf("c%d", i))] = resourcev1.DeviceCapacity{Value: resource.MustParse("1")}
	}
	for i := range maxEntries + 1 {
		device := newDevice([]string{fmt.Sprintf("d%d", i), fmt.Sprintf("type=%d", i), "costs=s/c:1"})
		device.AllowMultipleAllocations, device.Capacity = ptr.To(true), shared
		slice.Spec.Devices = append(slice.Spec.Devices, device)
	}
	p := newPool(slice)
	if summary, err := p.partitions(nil); summary != nil || err == nil || !strings.HasPrefix(err.Error(), "PartitionSummaryOverCap: ") {
		t.Errorf("partitions: %v, %v", summary, err)
	}
	if summary, err := p.shared(); summary != nil || err == nil || !strings.HasPrefix(err.Error(), "ShareableSummaryOverCap: ") {
		t.Errorf("shared: %v, %v", summary, err)
	}
	s := p.status(nil)
	if s.ValidationError == nil || !strings.HasPrefix(*s.ValidationError, "PartitionSummaryOverCap: ") || len(*s.ValidationError) != maxError {
		t.Errorf("got %v", s.ValidationError)
	}
	if *s.TotalDevices != maxEntries+1 {
		t.Errorf("%d devices", *s.TotalDevices)
	}
}

func TestAMessageIsCutBetweenCharacters(t *testing.T) {
	if got := *cut("aéz", 2); got != "a" {
		t.Errorf("got %q", got)
	}
	s := failure(errors.New(strings.Repeat("x", 5000)), time.Unix(7, 0))
	if c := s.Conditions[0]; len(c.Message) != maxMessage || c.Type != "Failed" || c.Status != metav1.ConditionTrue || *s.PoolCount != 0 {
		t.Errorf("got %+v", s)
	}
}

func TestARequestExpires(t *testing.T) {
	created, ended := time.Unix(1000, 0), time.Unix(2000, 0)
	ends := func(name string) *resourcev1alpha3.ResourcePoolStatusRequestStatus {
		return &resourcev1alpha3.ResourcePoolStatusRequestStatus{Conditions: []metav1.Condition{{Type: "Other"}, {Type: name, LastTransitionTime: metav1.NewTime(ended)}}}
	}
	tests := map[string]struct {
		status *resourcev1alpha3.ResourcePoolStatusRequestStatus
		want   time.Time
	}{
		"a day after its creation without a status":        {nil, created.Add(24 * time.Hour)},
		"an hour after it was complete":                    {ends("Complete"), ended.Add(time.Hour)},
		"an hour after it failed":                          {ends("Failed"), ended.Add(time.Hour)},
		"an hour after its creation with another's status": {&resourcev1alpha3.ResourcePoolStatusRequestStatus{}, created.Add(time.Hour)},
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		request := &resourcev1alpha3.ResourcePoolStatusRequest{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created)}, Status: tests[name].status}
		if got := expiry(request); !got.Equal(tests[name].want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}
