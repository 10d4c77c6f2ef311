package eviction

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/internal/oracle"
	"svc.dev/svc/svclet/eviction/threshold"
)

var runs = flag.Int("runs", 1000, "number of random nodes that are compared with the real kubelet's ranking")

// question is what the program of hack/tools/kubernetes/rank reads.
type question struct {
	Pods             []*corev1.Pod
	Stats            []statsapi.PodStats
	Signal           threshold.Signal
	ImageFs, SplitFs bool
}

// TestRanksLikeKubelet compares in which order the pods of random nodes are evicted with the
// ranking of the real kubelet. It needs the program: `make test-peers-eviction` builds it.
//
// What differs by intention is left out: kubelet subtracts the bytes of storage that a pod
// requests from the inodes that it uses; takes the storage that containers request for nothing in
// a pod with resources of its own; ranks critical pods, which it does not evict then; and takes
// what has not been measured for zero, where svclet measures cgroups.
func TestRanksLikeKubelet(t *testing.T) {
	kubelet := oracle.Start(t, "hack/tools/kubernetes/rank")
	failed := 0
	for seed := range uint64(*runs) {
		q := randomQuestion(rand.New(rand.NewPCG(seed, 1)))
		disks := oneDisk
		if q.ImageFs {
			disks = imageDisk
		}
		if q.SplitFs {
			disks = splitDisk
		}
		used := Usage{}
		for i := range q.Stats {
			used[q.Stats[i].PodRef.UID] = &q.Stats[i]
		}
		var ours, theirs []string
		for _, p := range Rank(q.Pods, used, starvedResource(q.Signal), disks.partsOf(q.Signal)) {
			ours = append(ours, p.Name)
		}
		if kubelet.Ask(t, q, &theirs); !slices.Equal(ours, theirs) {
			t.Errorf("seed %d, %s, separate disks %t and %t: %v, kubelet's %v", seed, q.Signal, q.ImageFs, q.SplitFs, ours, theirs)
			failed++
		}
		if failed == 10 {
			t.Fatal("too many differences")
		}
	}
}

// randomQuestion returns a node with two to nine pods, of which at most one has not been
// measured. No two use the same.
func randomQuestion(r *rand.Rand) *question {
	signals := []threshold.Signal{
		threshold.Memory, threshold.AllocatableMemory, threshold.PID, threshold.NodeFs, threshold.NodeFsInodes,
		threshold.ImageFs, threshold.ImageFsInodes, threshold.ContainerFs, threshold.ContainerFsInodes,
	}
	q := &question{Signal: signals[r.IntN(len(signals))], ImageFs: r.IntN(2) == 0}
	q.SplitFs = q.ImageFs && r.IntN(2) == 0
	ofInodes := starvedResource(q.Signal) == resourceInodes
	if q.SplitFs && q.Signal == threshold.ImageFsInodes {
		q.Signal = threshold.NodeFsInodes // pods have no inodes of the disk of images
	}
	unmeasured := r.IntN(20)
	for i := range 2 + r.IntN(8) {
		p := randomPod(r, fmt.Sprint("p", i), ofInodes)
		q.Pods = append(q.Pods, p)
		if i != unmeasured {
			q.Stats = append(q.Stats, randomStats(r, p))
		}
	}
	return q
}

// randomPod returns a pod of one to three containers, some of which are init containers.
func randomPod(r *rand.Rand, name string, ofInodes bool) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
	if r.IntN(4) > 0 {
		p.Spec.Priority = ptr.To(int32(10 * r.IntN(3)))
	}
	p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	own := r.IntN(5) == 0
	for i := range 1 + r.IntN(3) {
		requests := corev1.ResourceList{}
		if r.IntN(3) > 0 {
			requests[corev1.ResourceMemory] = randomAmount(r)
		}
		if !ofInodes && !own {
			requests[corev1.ResourceEphemeralStorage] = randomAmount(r)
		}
		c := corev1.Container{Name: fmt.Sprint("c", i), Resources: corev1.ResourceRequirements{Requests: requests}}
		switch {
		case i == 0 || r.IntN(3) > 0:
			p.Spec.Containers = append(p.Spec.Containers, c)
		case r.IntN(2) == 0:
			c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			fallthrough
		default:
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		}
	}
	if r.IntN(5) == 0 {
		p.Spec.Overhead = corev1.ResourceList{corev1.ResourceMemory: randomAmount(r)}
	}
	if own {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: randomAmount(r)}}
	}
	return p
}

func randomAmount(r *rand.Rand) resource.Quantity {
	return *resource.NewQuantity(1+r.Int64N(1<<30), resource.BinarySI)
}

// randomStats returns what a pod uses. Its disk has the layers and logs of its containers and its
// volume.
func randomStats(r *rand.Rand, p *corev1.Pod) statsapi.PodStats {
	disk := func() *statsapi.FsStats {
		return &statsapi.FsStats{UsedBytes: ptr.To(r.Uint64N(1 << 29)), InodesUsed: ptr.To(r.Uint64N(1 << 20))}
	}
	s := statsapi.PodStats{
		PodRef:           statsapi.PodReference{Name: p.Name, Namespace: p.Namespace, UID: string(p.UID)},
		Memory:           &statsapi.MemoryStats{WorkingSetBytes: ptr.To(r.Uint64N(1 << 31))},
		ProcessStats:     &statsapi.ProcessStats{ProcessCount: ptr.To(r.Uint64N(1 << 20))},
		VolumeStats:      []statsapi.VolumeStats{{Name: "scratch", FsStats: *disk()}},
		EphemeralStorage: &statsapi.FsStats{UsedBytes: new(uint64), InodesUsed: new(uint64)},
	}
	parts := []*statsapi.FsStats{&s.VolumeStats[0].FsStats}
	for i := range p.Spec.Containers {
		c := statsapi.ContainerStats{Name: p.Spec.Containers[i].Name, Rootfs: disk(), Logs: disk()}
		s.Containers, parts = append(s.Containers, c), append(parts, c.Rootfs, c.Logs)
	}
	for _, part := range parts {
		*s.EphemeralStorage.UsedBytes += *part.UsedBytes
		*s.EphemeralStorage.InodesUsed += *part.InodesUsed
	}
	return s
}
