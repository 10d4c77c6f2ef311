package eviction

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/eviction/threshold"
	"svc.dev/svc/svclet/pod"
)

// machine is a node with pods that each use a GiB of memory and of disk.
type machine struct {
	mu        sync.Mutex
	clock     *testclock.FakeClock
	pods      []*corev1.Pod
	evictions []pod.Eviction
	evicted   []types.UID
	// stuck are pods that do not end, and kept those that end but of which something is left.
	stuck, kept map[types.UID]bool
	// memory and disk are available, in GiB.
	memory, disk uint64
	// imageDisk is the capacity of another disk for images, in GiB; 0 for none.
	imageDisk uint64
	images    uint64 // in GiB, which RemoveImages removes
	// stale is how many measurements do not show yet that images have been removed.
	stale   int
	events  []string
	changes int
	// measured is how often the node and its pods were measured before the last eviction.
	measured, measurements int
	// blind is a node whose probes fail, and silent one whose runtime does not answer.
	blind, silent bool
	// unmeasured are pods of which the runtime has no statistics.
	unmeasured map[types.UID]bool
}

func newMachine(pods int) *machine {
	m := &machine{clock: testclock.NewFakeClock(time.Unix(1_800_000_000, 0)), memory: 10, disk: 10}
	for i := range pods {
		name := string(rune('a' + i))
		m.pods = append(m.pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}})
	}
	return m
}

func (m *machine) Active() []*corev1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.pods)
}

func (m *machine) Evict(uid types.UID, e pod.Eviction) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.evictions, m.evicted = append(m.evictions, e), append(m.evicted, uid)
	m.measured = m.measurements
	if m.stuck[uid] {
		return
	}
	if m.kept[uid] {
		m.pods = slices.DeleteFunc(m.pods, func(p *corev1.Pod) bool { return p.UID == uid })
		return
	}
	m.pods = slices.DeleteFunc(m.pods, func(p *corev1.Pod) bool { return p.UID == uid })
	m.memory++
	m.disk++
}

func (m *machine) Released(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.kept[uid] && !slices.ContainsFunc(m.pods, func(p *corev1.Pod) bool { return p.UID == uid })
}

// release ends what is left of a pod.
func (m *machine) release(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.kept, uid)
	m.memory++
	m.disk++
}

const gib = 1 << 30

func (m *machine) Summary(context.Context, bool) (*statsapi.Summary, error) {
	if m.silent {
		return nil, errors.New("the runtime does not answer")
	}
	m.mu.Lock()
	m.measurements++
	m.mu.Unlock()
	return m.summary(), nil
}

func (m *machine) summary() *statsapi.Summary {
	m.mu.Lock()
	defer m.mu.Unlock()
	disk := m.disk
	if m.stale > 0 && m.images == 0 {
		m.stale--
		disk -= 50
	}
	s := &statsapi.Summary{Node: statsapi.NodeStats{
		Memory: &statsapi.MemoryStats{Time: metav1.NewTime(m.clock.Now().Add(-3 * time.Second)), AvailableBytes: ptr.To(m.memory * gib), WorkingSetBytes: ptr.To[uint64](gib), UsageBytes: ptr.To[uint64](2 * gib)},
		Fs:     &statsapi.FsStats{AvailableBytes: ptr.To(disk * gib), CapacityBytes: ptr.To[uint64](100 * gib)},
	}}
	if m.imageDisk > 0 {
		s.Node.Runtime = &statsapi.RuntimeStats{ImageFs: &statsapi.FsStats{AvailableBytes: ptr.To(m.imageDisk * gib), CapacityBytes: ptr.To(m.imageDisk * gib)}}
	}
	for _, p := range m.pods {
		if m.unmeasured[p.UID] {
			continue
		}
		s.Pods = append(s.Pods, statsapi.PodStats{PodRef: statsapi.PodReference{UID: string(p.UID)}, VolumeStats: []statsapi.VolumeStats{{Name: "v", FsStats: statsapi.FsStats{UsedBytes: ptr.To[uint64](gib)}}}, Memory: &statsapi.MemoryStats{WorkingSetBytes: ptr.To[uint64](gib)}})
	}
	return s
}

func (m *machine) Probe() (*statsapi.Summary, error) {
	if m.blind {
		return nil, errors.New("not measured")
	}
	s := m.summary()
	s.Pods = nil
	return s, nil
}

func (m *machine) freeDisk(context.Context) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	freed := m.images
	m.disk, m.images = m.disk+freed, 0
	return freed > 0, nil
}

// start runs a manager with these thresholds, and returns what does a period.
func (m *machine) start(t *testing.T, s threshold.Settings, conditions *Conditions, change ...func(*Options)) (pass func(until func() bool)) {
	t.Helper()
	thresholds, err := threshold.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Pods: m, Stats: m, Clock: m.clock, Thresholds: thresholds, TransitionPeriod: time.Minute, MaxPodGrace: 30,
		Conditions: conditions, RemoveImages: m.freeDisk,
		Changed: func() { m.mu.Lock(); m.changes++; m.mu.Unlock() },
		Event: func(kind, reason, message string) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.events = append(m.events, kind+" "+reason+" "+message)
		},
	}
	for _, f := range change {
		f(&o)
	}
	manager := NewManager(o)
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { manager.Run(ctx) })
	t.Cleanup(func() { stop(); group.Wait() })
	return func(until func() bool) {
		t.Helper()
		limit := time.After(time.Minute)
		for !until() {
			select {
			case <-limit:
				t.Fatal("not within a minute")
			default:
				if m.clock.HasWaiters() {
					m.clock.Step(time.Second)
				}
			}
		}
	}
}

func (m *machine) left() int { return len(m.Active()) }

// seen returns the evictions until now, and the pods that they evict.
func (m *machine) seen() ([]pod.Eviction, []types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.evictions), slices.Clone(m.evicted)
}

func TestPodsAreEvictedOneAtATimeUntilThePressureEnds(t *testing.T) {
	m, conditions := newMachine(4), &Conditions{}
	m.memory = 1
	pass := m.start(t, threshold.Settings{Hard: map[string]string{"memory.available": "3Gi"}}, conditions)
	pass(func() bool { return m.left() == 2 })
	if !conditions.Has(corev1.NodeMemoryPressure) || m.changes == 0 {
		t.Errorf("the conditions are %v after %d changes", conditions.Get(), m.changes)
	}
	pass(func() bool { return len(conditions.Get()) == 0 })
	if m.left() != 2 {
		t.Errorf("%d pods are left after the pressure", m.left())
	}
	evictions, _ := m.seen()
	e := evictions[0]
	if e.Reason != "Evicted" || e.Signal != "memory.available" || *e.Grace != 1 || e.Disruption != e.Message ||
		e.Message != "The node was low on resource: memory. Threshold quantity: 3Gi, available: 1Gi. " {
		t.Errorf("evicts with %+v", e)
	}
	if m.events[0] != "Warning EvictionThresholdMet Attempting to reclaim memory" {
		t.Errorf("events: %q", m.events)
	}
}

func TestTheAgeOfTheStatisticsIsToldWhenAPodIsEvicted(t *testing.T) {
	m := newMachine(1)
	m.memory = 1
	told := make(chan time.Duration, 1)
	pass := m.start(t, threshold.Settings{Hard: map[string]string{"memory.available": "2Gi"}}, &Conditions{}, func(o *Options) {
		o.Measured = func(signal string, age time.Duration) {
			if signal == "memory.available" {
				told <- age
			}
		}
	})
	pass(func() bool { return m.left() == 0 })
	if age := <-told; age < 3*time.Second {
		t.Errorf("the age of the statistics is %s", age)
	}
}

func TestPodsWithoutStatisticsAreRankedByTheirCgroups(t *testing.T) {
	bytes := func(n uint64) func(*corev1.Pod) (*statsapi.PodStats, error) {
		return func(*corev1.Pod) (*statsapi.PodStats, error) {
			return &statsapi.PodStats{Memory: &statsapi.MemoryStats{WorkingSetBytes: &n}}, nil
		}
	}
	for _, test := range []struct {
		rule   string
		cgroup func(*corev1.Pod) (*statsapi.PodStats, error)
		want   types.UID
	}{
		{"a pod without a running container uses nothing", bytes(0), "b"},
		{"one that uses more than the others", bytes(2 * gib), "a"},
		{"one that cannot be measured", func(*corev1.Pod) (*statsapi.PodStats, error) { return nil, errors.New("broken") }, "a"},
		{"pods without cgroups of their own", nil, "a"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			m := newMachine(2)
			m.memory, m.unmeasured = 1, map[types.UID]bool{"a": true}
			pass := m.start(t, threshold.Settings{Hard: map[string]string{"memory.available": "2Gi"}}, &Conditions{}, func(o *Options) { o.Cgroup = test.cgroup })
			pass(func() bool { return m.left() == 1 })
			if _, pods := m.seen(); pods[0] != test.want {
				t.Errorf("evicts %v, want %s", pods, test.want)
			}
		})
	}
}

func TestAPodIsEvictedForMemoryWhileTheRuntimeDoesNotAnswer(t *testing.T) {
	m := newMachine(2)
	m.memory, m.silent = 1, true
	usage := map[string]uint64{"a": gib, "b": 2 * gib}
	pass := m.start(t, threshold.Settings{Hard: map[string]string{"memory.available": "2Gi"}}, &Conditions{}, func(o *Options) {
		o.Cgroup = func(p *corev1.Pod) (*statsapi.PodStats, error) {
			return &statsapi.PodStats{Memory: &statsapi.MemoryStats{WorkingSetBytes: ptr.To(usage[p.Name])}}, nil
		}
	})
	pass(func() bool { return m.left() == 1 })
	if _, pods := m.seen(); pods[0] != "b" {
		t.Errorf("evicts %v, want the one that uses most", pods)
	}
}

func TestNoPodIsEvictedForADiskWhileTheRuntimeDoesNotAnswer(t *testing.T) {
	m, conditions := newMachine(2), &Conditions{}
	m.disk, m.silent = 1, true
	pass := m.start(t, threshold.Settings{Hard: map[string]string{"nodefs.available": "10%"}}, conditions, func(o *Options) {
		o.Cgroup = func(*corev1.Pod) (*statsapi.PodStats, error) { return &statsapi.PodStats{}, nil }
	})
	pass(func() bool { return conditions.Has(corev1.NodeDiskPressure) })
	if m.left() != 2 {
		t.Errorf("%d pods are left: what they have on the disk is not known", m.left())
	}
}

func TestASoftThresholdEvictsWithItsGracePeriod(t *testing.T) {
	m := newMachine(1)
	m.memory = 1
	pass := m.start(t, threshold.Settings{Soft: map[string]string{"memory.available": "2Gi"}, SoftGrace: map[string]string{"memory.available": "1m"}}, &Conditions{})
	began := m.clock.Now()
	pass(func() bool { return m.left() == 0 })
	evictions, _ := m.seen()
	if waited := m.clock.Since(began); waited < time.Minute || *evictions[0].Grace != 30 {
		t.Errorf("evicts after %s within %d s", waited, *evictions[0].Grace)
	}
}

func TestUnusedImagesAreRemovedBeforeAPodIsEvicted(t *testing.T) {
	m, conditions := newMachine(1), &Conditions{}
	m.disk, m.images, m.stale = 1, 50, 1
	pass := m.start(t, threshold.Settings{Hard: map[string]string{"nodefs.available": "10%"}}, conditions)
	pass(func() bool { return conditions.Has(corev1.NodeDiskPressure) })
	pass(func() bool { return len(conditions.Get()) == 0 })
	if m.left() != 1 || m.images != 0 {
		t.Errorf("%d pods are left, and %d GiB of images", m.left(), m.images)
	}
}

func TestTheNextPodIsEvictedOnceNothingIsLeftOfTheOneBefore(t *testing.T) {
	m := newMachine(3)
	m.memory, m.kept = 1, map[types.UID]bool{"a": true}
	pass := m.start(t, threshold.Settings{Hard: map[string]string{"memory.available": "2Gi"}}, &Conditions{})
	pass(func() bool { return m.left() == 2 })
	evicted := m.clock.Now()
	pass(func() bool { return m.clock.Since(evicted) > 20*time.Second })
	if m.left() != 2 {
		t.Fatalf("%d pods are left while the volumes of an evicted one are unmounted", m.left())
	}
	m.release("a")
	pass(func() bool { return m.clock.Since(evicted) > 2*time.Minute })
	if m.left() != 2 {
		t.Errorf("%d pods are left after enough has been reclaimed", m.left())
	}
}

func TestAPodThatDoesNotEndDoesNotKeepOthers(t *testing.T) {
	m := newMachine(2)
	m.memory, m.stuck = 1, map[types.UID]bool{"a": true}
	pass := m.start(t, threshold.Settings{Hard: map[string]string{"memory.available": "2Gi"}}, &Conditions{})
	began := m.clock.Now()
	pass(func() bool { return m.left() == 1 })
	_, pods := m.seen()
	if waited := m.clock.Since(began); waited < cleanupTimeout || !slices.Equal(pods, []types.UID{"a", "b"}) {
		t.Errorf("evicts %v within %s", pods, waited)
	}
}

func TestPodsOverTheirLimitDoNotKeepTheNodeFromSayingThatItHasPressure(t *testing.T) {
	m, conditions := newMachine(2), &Conditions{}
	m.disk, m.stuck = 1, map[types.UID]bool{"a": true}
	m.pods[0].Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("1Ki"))}}}}
	pass := m.start(t, threshold.Settings{Hard: map[string]string{"nodefs.available": "2%"}}, conditions, func(o *Options) { o.StorageLimits = true })
	pass(func() bool { return conditions.Has(corev1.NodeDiskPressure) && m.left() == 1 })
	evictions, pods := m.seen()
	if !slices.Equal(pods, []types.UID{"a", "b"}) || evictions[0].Signal != "emptydirfs.limit" || evictions[1].Signal != "nodefs.available" {
		t.Errorf("evicts %v: %+v", pods, evictions)
	}
}

func TestAPodIsEvictedAtOnceIfNothingElseCanBeRemovedFromTheDisk(t *testing.T) {
	for _, dead := range []bool{false, true} {
		m := newMachine(1)
		m.disk = 1
		pass := m.start(t, threshold.Settings{Hard: map[string]string{"nodefs.available": "2%"}}, &Conditions{}, func(o *Options) { o.RemoveDead = func() bool { return dead } })
		pass(func() bool { return m.left() == 0 })
		want := 2
		if dead {
			want++ // the space of what is removed may be free a moment later
		}
		m.mu.Lock()
		if m.measured != want {
			t.Errorf("dead containers %v: evicts a pod after %d measurements, want %d", dead, m.measured, want)
		}
		m.mu.Unlock()
	}
}

func TestUnusedImagesStayIfTheyAreOnAnotherDisk(t *testing.T) {
	m, dead := newMachine(1), 0
	m.disk, m.images, m.imageDisk = 1, 50, 7
	pass := m.start(t, threshold.Settings{Hard: map[string]string{"nodefs.available": "2%"}}, &Conditions{}, func(o *Options) { o.RemoveDead = func() bool { dead++; return true } })
	pass(func() bool { return m.left() == 0 })
	if m.images != 50 || dead != 0 {
		t.Errorf("%d GiB of images are left, and dead containers are removed %d times", m.images, dead)
	}
}

func TestAHardThresholdIsNoticedWhileAPodEndsByASoftOne(t *testing.T) {
	m := newMachine(3)
	m.memory, m.stuck = 3, map[types.UID]bool{"a": true}
	conditions := &Conditions{}
	pass := m.start(t, threshold.Settings{
		Hard: map[string]string{"memory.available": "2Gi", "nodefs.available": "2%"},
		Soft: map[string]string{"memory.available": "4Gi"}, SoftGrace: map[string]string{"memory.available": "1s"},
	}, conditions)
	atLeast := func(count int) func() bool {
		return func() bool { evictions, _ := m.seen(); return len(evictions) >= count }
	}
	pass(atLeast(1))
	began := m.clock.Now()
	m.mu.Lock()
	m.memory = 1
	m.mu.Unlock()
	pass(atLeast(2)) // and more, as long as the memory is short
	evictions, pods := m.seen()
	if waited := m.clock.Since(began); waited >= 15*time.Second || *evictions[1].Grace != 1 {
		t.Errorf("evicts %v, the second after %s", pods, waited)
	}
}
