package stats_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/server/stats"
)

// machine writes /proc and /sys of a kernel with cgroup v1 or v2, with the same
// usage on both.
func machine(t *testing.T, unified bool) string {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{
		"proc/meminfo":                "MemTotal: 1000 kB\nMemFree: 400 kB\nSwapTotal: 100 kB\nSwapFree: 90 kB\n",
		"proc/stat":                   "cpu 1 2 3\nbtime 1000\n",
		"proc/loadavg":                "0.1 0.2 0.3 2/345 6789\n",
		"proc/sys/kernel/pid_max":     "32768\n",
		"proc/sys/kernel/threads-max": "9999\n",
		"proc/net/dev": "Inter-| Receive | Transmit\n face |bytes\n    lo: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n" +
			"  eth0: 10 0 1 0 0 0 0 0 20 0 2 0 0 0 0 0\nveth12: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n  eth1: 3 0 0 0 0 0 0 0 4 0 0 0 0 0 0 0\n",
	}
	if unified {
		for name, text := range map[string]string{
			"cgroup.controllers": "cpu memory", "cpu.stat": "usage_usec 5000000\n", "cpu.pressure": "some avg10=1.50 avg60=0.00 avg300=0.00 total=7\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
			"memory.stat":              "anon 2048\ninactive_file 102400\npgfault 5\npgmajfault 6\n",
			"kubepods/cpu.stat":        "usage_usec 1000000\n",
			"kubepods/memory.current":  "8192\n",
			"kubepods/memory.max":      "max\n",
			"kubepods/memory.stat":     "anon 4096\ninactive_file 1024\npgfault 7\npgmajfault 8\n",
			"kubepods/pids.current":    "12\n",
			"kubepods/memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
		} {
			files["sys/fs/cgroup/"+name] = text
		}
	} else {
		for name, text := range map[string]string{
			"cpuacct/cpuacct.usage": "5000000000\n", "memory/memory.usage_in_bytes": "614400\n", "memory/memory.limit_in_bytes": "9223372036854771712\n",
			"memory/memory.stat":                    "total_rss 2048\ntotal_inactive_file 102400\ntotal_pgfault 5\ntotal_pgmajfault 6\n",
			"cpuacct/kubepods/cpuacct.usage":        "1000000000\n",
			"memory/kubepods/memory.usage_in_bytes": "8192\n",
			"memory/kubepods/memory.limit_in_bytes": "9223372036854771712\n",
			"pids/kubepods/pids.current":            "12\n",
			"memory/kubepods/memory.stat":           "total_rss 4096\ntotal_inactive_file 1024\ntotal_pgfault 7\ntotal_pgmajfault 8\n",
		} {
			files["sys/fs/cgroup/"+name] = text
		}
	}
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// fake runs the pod web in its second sandbox, with the containers a and b; the
// first sandbox and an earlier attempt of a still exist.
type fake struct {
	clock       *clocktesting.FakeClock
	noSandboxes bool
	err         error
	available   map[string]uint64
	asked       int
	// twin is whether a second pod web runs, which was created while the first one ends.
	twin bool
}

func (f *fake) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	sandbox := func(id, name string, created int64, state runtimeapi.PodSandboxState) *runtimeapi.PodSandbox {
		return &runtimeapi.PodSandbox{Id: id, CreatedAt: created * 1e9, State: state, Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "default", Name: name, Uid: name + "-uid"}}
	}
	all := []*runtimeapi.PodSandbox{
		sandbox("old", "web", 10, runtimeapi.PodSandboxState_SANDBOX_NOTREADY),
		sandbox("new", "web", 20, runtimeapi.PodSandboxState_SANDBOX_READY),
		sandbox("done", "job", 30, runtimeapi.PodSandboxState_SANDBOX_NOTREADY),
	}
	if f.twin {
		twin := sandbox("twin", "web", 40, runtimeapi.PodSandboxState_SANDBOX_READY)
		twin.Metadata.Uid = "twin-uid"
		all = append([]*runtimeapi.PodSandbox{twin}, all...)
	}
	return all, f.err
}

func (f *fake) ListContainers(_ context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	var running []*runtimeapi.Container
	for _, c := range []*runtimeapi.Container{
		{Id: "a1", PodSandboxId: "new", State: runtimeapi.ContainerState_CONTAINER_EXITED, CreatedAt: 21e9, Metadata: &runtimeapi.ContainerMetadata{Name: "a"}},
		{Id: "b1", PodSandboxId: "new", State: runtimeapi.ContainerState_CONTAINER_RUNNING, CreatedAt: 22e9, Metadata: &runtimeapi.ContainerMetadata{Name: "b"}},
		{Id: "a2", PodSandboxId: "new", State: runtimeapi.ContainerState_CONTAINER_RUNNING, CreatedAt: 23e9, Metadata: &runtimeapi.ContainerMetadata{Name: "a"}},
		{Id: "twin-a", PodSandboxId: "twin", State: runtimeapi.ContainerState_CONTAINER_RUNNING, CreatedAt: 41e9, Metadata: &runtimeapi.ContainerMetadata{Name: "a"}},
	} {
		if c.State == filter.GetState().GetState() {
			running = append(running, c)
		}
	}
	return running, nil
}

// The containers use 10 % and 20 % of a CPU.
func (f *fake) containers() []*runtimeapi.ContainerStats {
	now := f.clock.Now().UnixNano()
	each := func(id, name string, share, memory uint64) *runtimeapi.ContainerStats {
		return &runtimeapi.ContainerStats{
			Attributes: &runtimeapi.ContainerAttributes{Id: id, Metadata: &runtimeapi.ContainerMetadata{Name: name}},
			Cpu:        &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: number(uint64(now) / 1000 * share)},
			Memory:     &runtimeapi.MemoryUsage{Timestamp: now, WorkingSetBytes: number(memory), AvailableBytes: f.free(id)},
		}
	}
	all := []*runtimeapi.ContainerStats{each("a2", "a", 100, 1000), each("b1", "b", 200, 2000), each("a1", "a", 999, 999)}
	if f.twin {
		all = append(all, each("twin-a", "a", 300, 7000))
	}
	return all
}

func (f *fake) ListContainerStats(context.Context, *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	return f.containers(), nil
}

func (f *fake) ListPodSandboxStats(ctx context.Context, _ *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	f.asked++
	if f.noSandboxes {
		err := errors.New("unimplemented")
		klog.FromContext(ctx).Error(err, "ListPodSandboxStats failed") // as the client does
		return nil, err
	}
	now := f.clock.Now().UnixNano()
	return []*runtimeapi.PodSandboxStats{{
		Attributes: &runtimeapi.PodSandboxAttributes{Id: "new"},
		Linux: &runtimeapi.LinuxPodSandboxStats{
			Cpu:     &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: number(uint64(now) / 2)},
			Memory:  &runtimeapi.MemoryUsage{Timestamp: now, WorkingSetBytes: number(5000), AvailableBytes: f.free("new")},
			Network: &runtimeapi.NetworkUsage{Timestamp: now, DefaultInterface: &runtimeapi.NetworkInterfaceUsage{Name: "eth0", RxBytes: number(1), TxBytes: number(2)}},
			Process: &runtimeapi.ProcessUsage{Timestamp: now, ProcessCount: number(3)}, Containers: f.containers(),
		},
	}}, nil
}

func (f *fake) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		Timestamp: 1e9, FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/nowhere"}, UsedBytes: number(77), InodesUsed: number(7),
	}}}, nil
}

// free is the available memory that the runtime reports, or nil.
func (f *fake) free(id string) *runtimeapi.UInt64Value {
	if f.available == nil {
		return nil
	}
	return number(f.available[id])
}

func number(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }

func provider(t *testing.T, f *fake, unified bool) *stats.Provider {
	t.Helper()
	root := machine(t, unified)
	logs := filepath.Join(root, "var/log/pods/default_web_web-uid/a")
	if err := os.MkdirAll(logs, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"0.log", "0.log.20260101-000000"} {
		if err := os.WriteFile(filepath.Join(logs, name), []byte("12345"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return stats.New(stats.Options{
		NodeName: "node", RootDirectory: root, PodLogsDirectory: filepath.Join(root, "var/log/pods"), Root: root, Clock: f.clock,
		SystemContainers: map[string]string{"pods": "/kubepods", "runtime": "/nowhere", "kubelet": ""},
	}, f, f, func(_ context.Context, uid types.UID) ([]statsapi.VolumeStats, error) {
		if uid != "web-uid" {
			return nil, errors.New("no such pod")
		}
		return []statsapi.VolumeStats{{Name: "data", PVCRef: &statsapi.PVCReference{Namespace: "default", Name: "claim"}, FsStats: statsapi.FsStats{CapacityBytes: ptr.To[uint64](100), UsedBytes: ptr.To[uint64](40)}}, {Name: "memory", FsStats: statsapi.FsStats{UsedBytes: ptr.To[uint64](1 << 40), CapacityBytes: ptr.To[uint64](1)}}}, nil
	})
}

// summary requests the summary while another goroutine advances the clock past the
// first sample.
func summary(t *testing.T, f *fake, p *stats.Provider, only bool) *statsapi.Summary {
	t.Helper()
	type answer struct {
		s   *statsapi.Summary
		err error
	}
	done := make(chan answer, 1)
	go func() {
		s, err := p.Summary(t.Context(), only)
		done <- answer{s, err}
	}()
	for {
		select {
		case a := <-done:
			if a.err != nil {
				t.Fatal(a.err)
			}
			return a.s
		default:
			if f.clock.HasWaiters() {
				f.clock.Step(200 * time.Millisecond)
			}
		}
	}
}

func TestTheSummaryOfANode(t *testing.T) {
	for name, unified := range map[string]bool{"cgroup v1": false, "cgroup v2": true} {
		t.Run(name, func(t *testing.T) {
			f := &fake{clock: clocktesting.NewFakeClock(time.Unix(5000, 0))}
			n := summary(t, f, provider(t, f, unified), false).Node
			got := map[string]any{
				"name": n.NodeName, "started": n.StartTime.Unix(), "cpu": *n.CPU.UsageCoreNanoSeconds, "rate": *n.CPU.UsageNanoCores,
				"usage": *n.Memory.UsageBytes, "working set": *n.Memory.WorkingSetBytes, "available": *n.Memory.AvailableBytes, "rss": *n.Memory.RSSBytes,
				"faults": *n.Memory.PageFaults, "swap": *n.Swap.SwapUsageBytes, "swap available": *n.Swap.SwapAvailableBytes,
				"interface": n.Network.Name, "interfaces": len(n.Network.Interfaces), "received": *n.Network.RxBytes, "sent": *n.Network.TxBytes, "errors": *n.Network.TxErrors,
				"pids": *n.Rlimit.MaxPID, "tasks": *n.Rlimit.NumOfRunningProcesses, "images": *n.Runtime.ImageFs.UsedBytes,
				"system": len(n.SystemContainers), "pods": *n.SystemContainers[0].Memory.WorkingSetBytes, "pods' limit": n.SystemContainers[0].Memory.AvailableBytes == nil,
				"fs": *n.Fs.CapacityBytes > 0,
			}
			want := map[string]any{
				"name": "node", "started": int64(1000), "cpu": uint64(5e9), "rate": uint64(0),
				"usage": uint64(600 << 10), "working set": uint64(500 << 10), "available": uint64(500 << 10), "rss": uint64(2048),
				"faults": uint64(5), "swap": uint64(10 << 10), "swap available": uint64(90 << 10),
				"interface": "eth0", "interfaces": 2, "received": uint64(10), "sent": uint64(20), "errors": uint64(2),
				"pids": int64(9999), "tasks": int64(345), "images": uint64(77),
				"system": 1, "pods": uint64(7168), "pods' limit": true, "fs": true,
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
			if unified && n.CPU.PSI.Some.Avg10 != 1.5 {
				t.Errorf("pressure is %+v", n.CPU.PSI)
			}
		})
	}
}

func TestAProbeIsOfTheSameResourcesAsTheSummary(t *testing.T) {
	f := &fake{clock: clocktesting.NewFakeClock(time.Unix(5000, 0))}
	p := provider(t, f, false)
	n := summary(t, f, p, false).Node
	probed, err := p.Probe()
	if err != nil {
		t.Fatal(err)
	}
	got := []any{
		*probed.Node.Memory.AvailableBytes, *probed.Node.Rlimit.NumOfRunningProcesses, *probed.Node.Fs.CapacityBytes,
		probed.Node.SystemContainers[0].Name, *probed.Node.SystemContainers[0].Memory.WorkingSetBytes,
	}
	want := []any{*n.Memory.AvailableBytes, *n.Rlimit.NumOfRunningProcesses, *n.Fs.CapacityBytes, n.SystemContainers[0].Name, *n.SystemContainers[0].Memory.WorkingSetBytes}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if images := probed.Node.Runtime; images != nil && !ptr.Equal(images.ImageFs.CapacityBytes, n.Runtime.ImageFs.CapacityBytes) {
		t.Errorf("the disk of images has %v", images.ImageFs.CapacityBytes)
	}
}

func TestAPodIsMeasuredByItsCgroup(t *testing.T) {
	for _, unified := range []bool{false, true} {
		root := machine(t, unified)
		p := stats.New(stats.Options{Root: root}, nil, nil, nil)
		used, err := p.PodCgroup("/kubepods")
		if err != nil || *used.Memory.WorkingSetBytes != 8192-1024 || *used.ProcessStats.ProcessCount != 12 {
			t.Errorf("unified %t: %+v, %v", unified, used, err)
		}
		none, err := p.PodCgroup("/kubepods/podx")
		if err != nil || *none.Memory.WorkingSetBytes != 0 || *none.ProcessStats.ProcessCount != 0 {
			t.Errorf("unified %t: a cgroup that does not exist: %+v, %v", unified, none, err)
		}
		file := map[bool]string{false: "sys/fs/cgroup/memory/kubepods/memory.stat", true: "sys/fs/cgroup/kubepods/memory.current"}[unified]
		if err := os.Remove(filepath.Join(root, file)); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(root, file), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := p.PodCgroup("/kubepods"); err == nil {
			t.Errorf("unified %t: no error for a cgroup that cannot be read", unified)
		}
	}
}

func TestTheSummaryOfPods(t *testing.T) {
	for name, c := range map[string]struct {
		noSandboxes  bool
		rate, memory uint64
	}{
		"as the runtime reports it": {false, 5e8, 5000}, "added up from containers": {true, 3e8, 3000},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{clock: clocktesting.NewFakeClock(time.Unix(5000, 0)), noSandboxes: c.noSandboxes}
			p := provider(t, f, false)
			pods := summary(t, f, p, false).Pods
			if len(pods) != 1 {
				t.Fatalf("there are %d pods with running containers", len(pods))
			}
			pod := pods[0]
			if pod.PodRef != (statsapi.PodReference{Namespace: "default", Name: "web", UID: "web-uid"}) || pod.StartTime.Unix() != 20 {
				t.Errorf("it is %+v from %s", pod.PodRef, pod.StartTime)
			}
			if *pod.CPU.UsageNanoCores != c.rate || *pod.Memory.WorkingSetBytes != c.memory {
				t.Errorf("it uses %d and %d bytes, want %d and %d", *pod.CPU.UsageNanoCores, *pod.Memory.WorkingSetBytes, c.rate, c.memory)
			}
			if len(pod.Containers) != 2 || pod.Containers[0].Name != "a" || pod.Containers[0].StartTime.Unix() != 23 || *pod.Containers[0].CPU.UsageNanoCores != 1e8 {
				t.Errorf("its containers are %+v", pod.Containers)
			}
			if logs := pod.Containers[0].Logs; *logs.UsedBytes != 10 || *logs.InodesUsed != 2 {
				t.Errorf("the logs of a take %d bytes", *logs.UsedBytes)
			}
			if got := *pod.EphemeralStorage.UsedBytes; got != 10 {
				t.Errorf("it takes %d bytes of the node's file system", got)
			}
			if (pod.Network == nil) != c.noSandboxes {
				t.Errorf("its network is %+v", pod.Network)
			}
		})
	}
}

func TestAvailableMemoryIsReportedOnlyWithALimit(t *testing.T) {
	const none = math.MaxInt64 - 1<<12
	for name, tt := range map[string]struct {
		sandbox, a, b uint64 // available, as the runtime reports it
		noSandboxes   bool
		want          *uint64
	}{
		"a pod":                     {sandbox: 7, want: ptr.To[uint64](7)},
		"a pod without limit":       {sandbox: 0},
		"a pod of cgroup v1":        {sandbox: none},
		"all its containers":        {noSandboxes: true, a: 3, b: 4, want: ptr.To[uint64](7)},
		"one of its containers":     {noSandboxes: true, a: 3},
		"a container with too much": {noSandboxes: true, a: 3, b: none},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{clock: clocktesting.NewFakeClock(time.Unix(5000, 0)), noSandboxes: tt.noSandboxes}
			f.available = map[string]uint64{"new": tt.sandbox, "a2": tt.a, "b1": tt.b}
			got := summary(t, f, provider(t, f, true), true).Pods[0].Memory.AvailableBytes
			if !ptr.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", ptr.Deref(got, 0), ptr.Deref(tt.want, 0))
			}
		})
	}
}

func TestSummariesAreCachedForASecond(t *testing.T) {
	f := &fake{clock: clocktesting.NewFakeClock(time.Unix(5000, 0))}
	p := provider(t, f, false)
	summary(t, f, p, true)
	asked := f.asked
	f.clock.Step(999 * time.Millisecond)
	summary(t, f, p, true)
	if f.asked != asked {
		t.Error("a fresh answer was found out again")
	}
	f.clock.Step(2 * time.Millisecond)
	s := summary(t, f, p, true)
	if f.asked != asked+1 {
		t.Errorf("the runtime was asked %d times", f.asked-asked)
	}
	if rate := s.Pods[0].CPU.UsageNanoCores; rate == nil || *rate < 499e6 || *rate > 501e6 {
		t.Errorf("the rate between two questions is %v", rate)
	}
}

func TestARuntimeThatFailsFailsTheSummaryAndTheScrape(t *testing.T) {
	f := &fake{clock: clocktesting.NewFakeClock(time.Unix(5000, 0)), err: errors.New("away")}
	p := provider(t, f, false)
	if _, err := p.Summary(t.Context(), true); err == nil || !strings.Contains(err.Error(), "failed to list pod stats: away") {
		t.Errorf("failed with %v", err)
	}
	want := "# HELP resource_scrape_error [STABLE] 1 if there was an error while getting container metrics, 0 otherwise\n# TYPE resource_scrape_error gauge\nresource_scrape_error 1\n"
	if err := testutil.CollectAndCompare(p.Resource(), strings.NewReader(want), "resource_scrape_error", "node_cpu_usage_seconds_total"); err != nil {
		t.Error(err)
	}
}

func TestResourceMetrics(t *testing.T) {
	f := &fake{clock: clocktesting.NewFakeClock(time.Unix(5000, 0))}
	p := provider(t, f, false)
	compare(t, p.Resource(), "testdata/resource.txt") // the clock stands still: counters need no second sample
	if s := summary(t, f, p, true); s.Node.CPU.UsageNanoCores == nil || s.Pods[0].CPU.UsageNanoCores == nil {
		t.Error("who asks next is told no rates")
	}
}

func TestMetricsOfVolumesAreThoseOfClaims(t *testing.T) {
	f := &fake{clock: clocktesting.NewFakeClock(time.Unix(5000, 0))}
	want := `
# HELP kubelet_volume_stats_capacity_bytes [ALPHA] Capacity in bytes of the volume
# TYPE kubelet_volume_stats_capacity_bytes gauge
kubelet_volume_stats_capacity_bytes{namespace="default",persistentvolumeclaim="claim"} 100
# HELP kubelet_volume_stats_used_bytes [ALPHA] Number of used bytes in the volume
# TYPE kubelet_volume_stats_used_bytes gauge
kubelet_volume_stats_used_bytes{namespace="default",persistentvolumeclaim="claim"} 40
`
	p := provider(t, f, false)
	summary(t, f, p, false)
	f.clock.Step(time.Minute)
	asked := f.asked
	if err := testutil.CollectAndCompare(p.VolumeMetrics(), strings.NewReader(want)); err != nil || f.asked != asked {
		t.Errorf("the runtime is asked %d times: %v", f.asked-asked, err)
	}
}

func TestCadvisorMetrics(t *testing.T) {
	f := &fake{clock: clocktesting.NewFakeClock(time.Unix(5000, 0))}
	p := provider(t, f, false)
	summary(t, f, p, false)
	compare(t, p.Cadvisor(), "testdata/cadvisor.txt")
}

// compare compares metrics with a file; UPDATE=1 writes it.
func compare(t *testing.T, c prometheus.Collector, path string) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
			t.Fatal(err)
		}
	}
	got := text.Bytes()
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Error(d)
	}
}

func TestVolumesThatDoNotRespondDelayASummaryOnce(t *testing.T) {
	f := &fake{clock: clocktesting.NewFakeClock(time.Unix(5000, 0))}
	asked := 0
	p := stats.New(stats.Options{NodeName: "node", RootDirectory: t.TempDir(), Root: machine(t, true), Clock: f.clock}, f, f, func(ctx context.Context, _ types.UID) ([]statsapi.VolumeStats, error) {
		asked++
		<-ctx.Done() // the request's own context has no end
		return nil, ctx.Err()
	})
	if s := summary(t, f, p, false); len(s.Pods) == 0 || asked == 0 {
		t.Errorf("%d pods, volumes asked for %d times", len(s.Pods), asked)
	}
	asked = 0
	f.clock.Step(time.Minute)
	if n := testutil.CollectAndCount(p.Resource()); n < 3 || asked != 0 {
		t.Errorf("%d metrics, volumes asked for %d times", n, asked)
	}
}

func TestTheSummaryIsJSON(t *testing.T) {
	f := &fake{clock: clocktesting.NewFakeClock(time.Unix(5000, 0))}
	data, err := json.Marshal(summary(t, f, provider(t, f, true), false))
	if err != nil || !strings.HasPrefix(string(data), `{"node":{"nodeName":"node"`) {
		t.Errorf("%s, %v", data, err)
	}
}
