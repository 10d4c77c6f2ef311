// Package threshold reads the eviction thresholds of the configuration (document 3,
// section 8).
package threshold

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Signal is a measure of a resource of the node that may run out.
type Signal string

// The signals that thresholds may have. AllocatableMemory is that of all pods
// together; its threshold is memory's.
const (
	Memory            Signal = "memory.available"
	NodeFs            Signal = "nodefs.available"
	NodeFsInodes      Signal = "nodefs.inodesFree"
	ImageFs           Signal = "imagefs.available"
	ImageFsInodes     Signal = "imagefs.inodesFree"
	ContainerFs       Signal = "containerfs.available"
	ContainerFsInodes Signal = "containerfs.inodesFree"
	PID               Signal = "pid.available"
	AllocatableMemory Signal = "allocatableMemory.available"
)

// configurable are the signals that a configuration may name, in the order in which
// their resources are reclaimed: memory comes first, because a node without memory may
// not be able to evict any more.
var configurable = []Signal{Memory, NodeFs, NodeFsInodes, ImageFs, ImageFsInodes, ContainerFs, ContainerFsInodes, PID}

// Amount is a quantity, or a part of the capacity.
type Amount struct {
	quantity *resource.Quantity
	part     float64
}

// Of returns the quantity, given the capacity.
func (a Amount) Of(capacity int64) resource.Quantity {
	if a.quantity != nil {
		return a.quantity.DeepCopy()
	}
	return *resource.NewQuantity(int64(float64(capacity)*a.part), resource.BinarySI)
}

// Threshold is met while less than Value is available.
type Threshold struct {
	Signal Signal
	Value  Amount
	// Hard thresholds evict at once; others after Grace.
	Hard  bool
	Grace time.Duration
	// Reclaim is how much more than Value has to be available before the threshold is
	// not met any more.
	Reclaim Amount
}

// Settings are the fields of the configuration.
type Settings struct {
	Hard, Soft, SoftGrace, Reclaim map[string]string
	// Pods reports whether the resources of all pods together are limited
	// (--enforce-node-allocatable=pods).
	Pods bool
}

// Parse returns the thresholds, in the order in which their resources are reclaimed.
func Parse(s Settings) ([]Threshold, error) {
	reclaim := map[Signal]Amount{}
	for name, text := range sorted(s.Reclaim) {
		amount, _, err := parseAmount(name, text)
		if err != nil {
			return nil, err
		}
		reclaim[Signal(name)] = amount
	}
	graces := map[Signal]time.Duration{}
	for name, text := range sorted(s.SoftGrace) {
		if err := checkSignal(name); err != nil {
			return nil, err
		}
		grace, err := time.ParseDuration(text)
		if err != nil || grace < 0 {
			return nil, fmt.Errorf("%s: invalid grace period %q: must be a duration, as 30s", name, text)
		}
		graces[Signal(name)] = grace
	}
	var all []Threshold
	for _, kind := range []struct {
		hard   bool
		values map[string]string
	}{{true, s.Hard}, {false, s.Soft}} {
		for name, text := range sorted(kind.values) {
			amount, enabled, err := parseAmount(name, text)
			if err != nil {
				return nil, err
			}
			if !enabled {
				continue
			}
			t := Threshold{Signal: Signal(name), Value: amount, Hard: kind.hard, Reclaim: reclaim[Signal(name)]}
			if grace, set := graces[t.Signal]; !kind.hard && !set {
				return nil, fmt.Errorf("%s has a soft threshold: it needs a grace period", name)
			} else if !kind.hard {
				t.Grace = grace
			}
			all = append(all, t)
			if t.Hard && t.Signal == Memory && s.Pods {
				t.Signal = AllocatableMemory
				all = append(all, t)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Threshold) int { return order(a.Signal) - order(b.Signal) })
	return all, nil
}

func order(s Signal) int {
	if s == AllocatableMemory {
		s = Memory
	}
	return slices.Index(configurable, s)
}

// parseAmount parses the value of a signal. Thresholds of 0% and 100% are disabled.
func parseAmount(name, text string) (a Amount, enabled bool, err error) {
	if err := checkSignal(name); err != nil {
		return Amount{}, false, err
	}
	if number, isPart := strings.CutSuffix(text, "%"); isPart {
		part, err := strconv.ParseFloat(number, 64)
		if err != nil || part < 0 || part > 100 {
			return Amount{}, false, fmt.Errorf("%s: invalid percentage %q: must be from 0%% to 100%%", name, text)
		}
		return Amount{part: part / 100}, part > 0 && part < 100, nil
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil || quantity.Sign() < 0 {
		return Amount{}, false, fmt.Errorf("%s: invalid value %q: must be a quantity, as 100Mi, or a percentage, as 10%%", name, text)
	}
	return Amount{quantity: &quantity}, true, nil
}

// checkSignal returns an error if no configuration may name the signal.
func checkSignal(name string) error {
	if slices.Contains(configurable, Signal(name)) {
		return nil
	}
	var all []string
	for _, signal := range configurable {
		all = append(all, string(signal))
	}
	return fmt.Errorf("unsupported signal %q: one of %s", name, strings.Join(all, ", "))
}

// sorted iterates over a map in the order of its keys.
func sorted(m map[string]string) func(func(key, value string) bool) {
	return func(yield func(key, value string) bool) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !yield(key, m[key]) {
				return
			}
		}
	}
}

// Reserved returns what hard thresholds keep from pods, given the node's capacity: it is
// not allocatable.
func Reserved(thresholds []Threshold, capacity corev1.ResourceList) corev1.ResourceList {
	reserved := corev1.ResourceList{}
	for _, t := range thresholds {
		name := map[Signal]corev1.ResourceName{Memory: corev1.ResourceMemory, NodeFs: corev1.ResourceEphemeralStorage}[t.Signal]
		if of, has := capacity[name]; t.Hard && has {
			reserved[name] = t.Value.Of(of.Value())
		}
	}
	return reserved
}
