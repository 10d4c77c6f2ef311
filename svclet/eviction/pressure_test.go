package eviction

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/internal/golden"
	"svc.dev/svc/svclet/eviction/threshold"
)

// script is a node in a golden script: its thresholds, its time and its pods.
type script struct {
	t        *testing.T
	settings threshold.Settings
	pressure *Pressure
	now      time.Time
	starved  *Starved
	pods     []*corev1.Pod
	used     Usage
	layout   layout
}

func TestScripts(t *testing.T) {
	golden.Run(t, func(t *testing.T) golden.Handler {
		s := &script{t: t, now: time.Unix(1_800_000_000, 0), used: Usage{}}
		return func(c golden.Command) string {
			switch c.Name {
			case "thresholds":
				return s.thresholds(c.Args)
			case "observe":
				return s.observe(c.Args)
			case "disks": // one, image or split
				s.layout = map[string]layout{"image": imageDisk, "split": splitDisk}[c.Args[0]]
			case "pod":
				s.pod(c.Args)
			case "rank":
				return s.rank()
			case "reserved":
				reserved := threshold.Reserved(s.pressure.thresholds, quantities(c.Args))
				return fmt.Sprintf("memory %s, ephemeral-storage %s", reserved.Memory(), reserved.StorageEphemeral())
			default:
				if wait, err := time.ParseDuration(strings.TrimPrefix(c.Name, "+")); err == nil {
					s.now = s.now.Add(wait)
					return s.observe(c.Args)
				}
				t.Fatalf("unknown command %q", c.Name)
			}
			return ""
		}
	})
}

func pairs(text string) map[string]string {
	all := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(pair, ":")
		all[key] = value
	}
	return all
}

func (s *script) thresholds(args []string) string {
	var transition time.Duration
	for _, arg := range args {
		name, text, _ := strings.Cut(arg, "=")
		switch name {
		case "hard":
			s.settings.Hard = pairs(text)
		case "soft":
			s.settings.Soft = pairs(text)
		case "grace":
			s.settings.SoftGrace = pairs(text)
		case "reclaim":
			s.settings.Reclaim = pairs(text)
		case "pods":
			s.settings.Pods = text == "true"
		case "transition":
			transition, _ = time.ParseDuration(text)
		}
	}
	all, err := threshold.Parse(s.settings)
	if err != nil {
		return err.Error()
	}
	s.pressure = NewPressure(all, transition)
	var names []string
	for _, t := range all {
		names = append(names, string(t.Signal))
	}
	return strings.Join(names, " ")
}

// observe is a step: each argument is signal=available/capacity.
func (s *script) observe(args []string) string {
	observed := Signals{}
	for _, arg := range args {
		signal, amounts, _ := strings.Cut(arg, "=")
		available, capacity, _ := strings.Cut(amounts, "/")
		a, c := resource.MustParse(available), resource.MustParse(capacity)
		observed[threshold.Signal(signal)] = Observation{a.Value(), c.Value()}
	}
	d := s.pressure.Step(s.now, observed)
	s.starved = d.Starved
	lines := fmt.Sprint(d.Conditions)
	if d.Starved != nil {
		lines += fmt.Sprintf(" reclaim %s by %s (hard: %t): %s of %s", d.Starved.Resource, d.Starved.Threshold.Signal, d.Starved.Threshold.Hard, &d.Starved.Available, &d.Starved.Quantity)
	}
	return lines
}

func quantities(args []string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, arg := range args {
		name, amount, _ := strings.Cut(arg, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return list
}

// pod adds a pod: NAME [priority=N] [request.RESOURCE=Q] [pod.RESOURCE=Q] [overhead.RESOURCE=Q] [memory=Q] [disk=Q [layers=Q]] [inodes=N]
// [pids=N] [critical] [static].
func (s *script) pod(args []string) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: args[0], UID: types.UID(args[0])}}
	requests := corev1.ResourceList{}
	var used *statsapi.PodStats
	stats := func() *statsapi.PodStats {
		if used == nil {
			used = &statsapi.PodStats{EphemeralStorage: &statsapi.FsStats{}, Containers: []statsapi.ContainerStats{{Name: "c"}}}
			s.used[args[0]] = used
		}
		return used
	}
	for _, arg := range args[1:] {
		name, text, _ := strings.Cut(arg, "=")
		switch {
		case name == "critical":
			p.Spec.Priority = ptr.To[int32](2_000_000_000)
		case name == "static":
			p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		case name == "priority":
			n, _ := strconv.Atoi(text)
			p.Spec.Priority = ptr.To(int32(n))
		case strings.HasPrefix(name, "pod."): // requested by the pod as a whole
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: quantities([]string{strings.TrimPrefix(arg, "pod.")})}
		case strings.HasPrefix(name, "overhead."):
			p.Spec.Overhead = quantities([]string{strings.TrimPrefix(arg, "overhead.")})
		case strings.HasPrefix(name, "request."):
			requests[corev1.ResourceName(strings.TrimPrefix(name, "request."))] = resource.MustParse(text)
		default:
			q := resource.MustParse(text)
			amount := ptr.To(uint64(q.Value()))
			switch name {
			case "memory":
				stats().Memory = &statsapi.MemoryStats{WorkingSetBytes: amount}
				stats().Containers[0].Memory = stats().Memory
			case "disk":
				stats().EphemeralStorage.UsedBytes = amount
				stats().Containers[0].Rootfs, stats().Containers[0].Logs = &statsapi.FsStats{UsedBytes: amount}, &statsapi.FsStats{UsedBytes: new(uint64)}
			case "layers": // a part of disk
				stats().Containers[0].Rootfs = &statsapi.FsStats{UsedBytes: amount}
			case "inodes":
				stats().EphemeralStorage.InodesUsed = amount
			case "pids":
				stats().ProcessStats = &statsapi.ProcessStats{ProcessCount: amount}
			default:
				s.t.Fatalf("unknown argument %q", arg)
			}
		}
	}
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests}}}
	s.pods = append(s.pods, p)
}

// rank ranks the pods for the resource of the last step.
func (s *script) rank() string {
	var names []string
	disk := s.layout.partsOf(s.starved.Threshold.Signal)
	ranked := Rank(s.pods, s.used, s.starved.Resource, disk)
	for _, p := range ranked {
		names = append(names, p.Name)
	}
	message, annotations := Message(ranked[0], s.used[ranked[0].Name], s.starved)
	lines := []string{strings.Join(names, " "), message, fmt.Sprintf("offending %q using %q", annotations["offending_containers"], annotations["offending_containers_usage"])}
	if name := annotations["offending_pod"]; name != "" {
		lines = append(lines, fmt.Sprintf("offending pod %q using %q", name, annotations["offending_pod_usage"]))
	}
	if condition(s.starved.Threshold.Signal) == corev1.NodeDiskPressure {
		lines = append(lines, fmt.Sprintf("removes before: dead containers %t, images %t", disk.layers, disk.images))
	}
	return strings.Join(lines, "\n")
}
