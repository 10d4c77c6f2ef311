package cgroup

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups/systemd"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// The names of systemd on the bus.
const (
	systemdName    = "org.freedesktop.systemd1"
	systemdPath    = "/org/freedesktop/systemd1"
	systemdManager = systemdName + ".Manager"
)

// property is a property of a unit, and auxiliary a unit that is started with another one.
type (
	property struct {
		Name  string
		Value dbus.Variant
	}
	auxiliary struct {
		Name       string
		Properties []property
	}
)

// fakeSystemd does what systemd does for svclet, on a real bus: it keeps units, and makes and
// removes the cgroups of slices.
type fakeSystemd struct {
	t       *testing.T
	address string // of the bus
	bus     *exec.Cmd
	conn    *dbus.Conn

	mu      sync.Mutex
	units   map[string]map[string]any // properties by unit
	started []string
	jobs    uint32
	refused map[string]string // errors of StartTransientUnit by unit
	results map[string]string // results of jobs by unit, if not "done"
}

// startSystemd starts a bus with a fake of systemd, as the system's.
func startSystemd(t *testing.T) *fakeSystemd {
	t.Helper()
	if _, err := exec.LookPath("dbus-daemon"); err != nil {
		t.Skip("this machine has no dbus-daemon")
	}
	mount(t, "tmpfs", "/run")
	if err := os.MkdirAll("/run/systemd/system", 0o755); err != nil { // by which the library finds systemd
		t.Fatal(err)
	}
	f := &fakeSystemd{
		t: t, address: "unix:path=/run/bus", units: map[string]map[string]any{}, refused: map[string]string{}, results: map[string]string{},
	}
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", f.address)
	f.start()
	t.Cleanup(func() { f.stop() })
	return f
}

// start starts the bus, and serves systemd on it.
func (f *fakeSystemd) start() {
	f.t.Helper()
	f.bus = exec.CommandContext(f.t.Context(), "dbus-daemon", "--session", "--nofork", "--print-address", "--address="+f.address)
	out, err := f.bus.StdoutPipe()
	if err == nil {
		err = f.bus.Start()
	}
	if err == nil {
		_, err = bufio.NewReader(out).ReadString('\n') // it listens
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.conn, err = dbus.Connect(f.address)
	}
	if err == nil {
		_, err = prop.Export(f.conn, systemdPath, prop.Map{systemdManager: {"Version": {Value: "252.1-1"}}})
	}
	if err == nil {
		err = f.conn.Export(f, systemdPath, systemdManager)
	}
	if err == nil {
		_, err = f.conn.RequestName(systemdName, dbus.NameFlagDoNotQueue)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// stop ends the bus with all its connections.
func (f *fakeSystemd) stop() {
	_ = f.bus.Process.Kill()
	_ = f.bus.Wait() // it was killed
	_ = f.conn.Close()
	_ = os.Remove(strings.TrimPrefix(f.address, "unix:path="))
}

// StartTransientUnit is systemd's.
func (f *fakeSystemd) StartTransientUnit(unit, mode string, properties []property, _ []auxiliary) (dbus.ObjectPath, *dbus.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case mode != "replace":
		return "", dbus.NewError(systemdName+".InvalidArgs", []any{"mode " + mode})
	case f.refused[unit] != "":
		return "", dbus.NewError(systemdName+"."+f.refused[unit], []any{"refused by the test"})
	case f.units[unit] != nil:
		return "", dbus.NewError(systemdName+".UnitExists", []any{"Unit " + unit + " already exists."})
	}
	if f.results[unit] == "" {
		f.started = append(f.started, unit)
		f.units[unit] = map[string]any{}
		f.merge(unit, properties)
		if err := fakeCgroup(f.cgroup(unit)); err != nil {
			return "", dbus.MakeFailedError(err)
		}
	}
	return f.job(unit)
}

// StopUnit is systemd's.
func (f *fakeSystemd) StopUnit(unit, _ string) (dbus.ObjectPath, *dbus.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.units[unit] == nil {
		return "", dbus.NewError(systemdName+".NoSuchUnit", []any{"Unit " + unit + " not loaded."})
	}
	delete(f.units, unit)
	if err := os.RemoveAll(f.cgroup(unit)); err != nil { // the files are the fake's, not the kernel's
		return "", dbus.MakeFailedError(err)
	}
	return f.job(unit)
}

// SetUnitProperties is systemd's.
func (f *fakeSystemd) SetUnitProperties(unit string, _ bool, properties []property) *dbus.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.units[unit] == nil {
		return dbus.NewError(systemdName+".NoSuchUnit", []any{"Unit " + unit + " not loaded."})
	}
	f.merge(unit, properties)
	return nil
}

// ResetFailedUnit is systemd's.
func (*fakeSystemd) ResetFailedUnit(string) *dbus.Error { return nil }

// job tells that a job of a unit has ended. The caller holds mu.
func (f *fakeSystemd) job(unit string) (dbus.ObjectPath, *dbus.Error) {
	f.jobs++
	path, result := dbus.ObjectPath(fmt.Sprintf("%s/job/%d", systemdPath, f.jobs)), f.results[unit]
	if result == "" {
		result = "done"
	}
	if err := f.conn.Emit(systemdPath, systemdManager+".JobRemoved", f.jobs, path, unit, result); err != nil {
		return "", dbus.MakeFailedError(err)
	}
	return path, nil
}

func (f *fakeSystemd) merge(unit string, properties []property) {
	for _, p := range properties {
		f.units[unit][p.Name] = p.Value.Value()
	}
}

func (f *fakeSystemd) cgroup(unit string) string {
	path, err := systemd.ExpandSlice(unit)
	if err != nil {
		f.t.Error(err)
	}
	return filepath.Join(unified, path)
}

// fail sets what systemd answers when a unit is started: an error of systemd, and the result of
// the job.
func (f *fakeSystemd) fail(unit, refusal, result string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused[unit], f.results[unit] = refusal, result
}

// expect checks properties of a unit.
func (f *fakeSystemd) expect(unit string, want map[string]any) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	got := maps.Clone(f.units[unit])
	maps.DeleteFunc(got, func(name string, _ any) bool { _, compared := want[name]; return !compared })
	if diff := cmp.Diff(want, got); diff != "" {
		f.t.Errorf("the properties of %s (-want +got):\n%s", unit, diff)
	}
}

// expectStarted checks which units were started, in which order.
func (f *fakeSystemd) expectStarted(want []string) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if diff := cmp.Diff(want, f.started); diff != "" {
		f.t.Errorf("units that were started (-want +got):\n%s", diff)
	}
}

// names returns the names of the units.
func (f *fakeSystemd) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.units))
}

// newSystemdManager returns a manager with the driver systemd, which has made the cgroups of
// the classes.
func newSystemdManager(t *testing.T) *Manager {
	t.Helper()
	m, err := New(Options{
		PerQOS: true, Driver: Systemd, PodMaxPIDs: 64, CPU: CPUQuota{Enforce: true}, Protection: ProtectAll,
		Capacity: list("cpu", "2", "memory", "1Gi", "pid", "1000"), Enforce: []string{EnforcePods}, Clock: clock.RealClock{},
	})
	if err == nil {
		err = m.Start()
	}
	if err == nil {
		err = m.Enforce(func(_, _, message string) { t.Log(message) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestPodsAreSlicesOfSystemd makes and removes the cgroups of pods with the driver systemd, in
// files in place of cgroup v2: units, their properties and the files have the limits.
func TestPodsAreSlicesOfSystemd(t *testing.T) {
	if !inOwnMounts(t) {
		return
	}
	fakeUnified(t)
	f := startSystemd(t)
	m := newSystemdManager(t)
	pod, other := testPod("1-2", guaranteed("cpu", "500m", "memory", "64Mi")), testPod("3-4", burstable("cpu", "1", "memory", "32Mi"))
	for range 2 { // to make them again changes nothing
		for _, p := range []*corev1.Pod{pod, other} {
			if err := create(m, p); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := m.UpdateClasses([]*corev1.Pod{pod, other}); err != nil {
		t.Fatal(err)
	}
	const guaranteedUnit, burstableUnit = "kubepods-pod1_2.slice", "kubepods-burstable-pod3_4.slice"
	want := []string{"kubepods.slice", "kubepods-burstable.slice", "kubepods-besteffort.slice", guaranteedUnit, burstableUnit}
	f.expectStarted(want)
	f.expect("kubepods.slice", map[string]any{"Wants": []string{"-.slice"}, "MemoryMax": uint64(1 << 30), "MemoryMin": uint64(96 << 20), "CPUWeight": uint64(79), "TasksMax": uint64(1000), "AllowedCPUs": []byte{3}})
	f.expect("kubepods-burstable.slice", map[string]any{"Wants": []string{"kubepods.slice"}, "CPUWeight": uint64(39), "MemoryMin": uint64(32 << 20)})
	f.expect("kubepods-besteffort.slice", map[string]any{"CPUWeight": uint64(1)})
	f.expect(guaranteedUnit, map[string]any{
		"Wants": []string{"kubepods.slice"}, "MemoryMax": uint64(64 << 20), "MemoryMin": uint64(64 << 20), "MemoryLow": uint64(0), "CPUWeight": uint64(20),
		"CPUQuotaPerSecUSec": uint64(500_000), "CPUQuotaPeriodUSec": uint64(100_000), "TasksMax": uint64(64),
		"MemoryAccounting": true, "CPUAccounting": true, "TasksAccounting": true, "DefaultDependencies": false,
	})
	f.expect(burstableUnit, map[string]any{"Wants": []string{"kubepods-burstable.slice"}, "CPUWeight": uint64(39), "TasksMax": uint64(64)})
	parent, err := m.Parent(pod)
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"memory.max": "67108864", "cpu.max": "50000 100000", "cpu.weight": "20", "pids.max": "64", "memory.min": "67108864"} {
		expect(t, filepath.Join(unified, parent, file), text)
	}
	if uids, err := m.Pods(); err != nil || !slices.Equal(uids, []types.UID{"1-2", "3-4"}) {
		t.Errorf("pods %v, %v", uids, err)
	}
	for _, p := range []*corev1.Pod{pod, other} {
		if err := m.Remove(t.Context(), p.UID); err != nil {
			t.Fatal(err)
		}
	}
	if names := f.names(); !slices.Equal(names, []string{"kubepods-besteffort.slice", "kubepods-burstable.slice", "kubepods.slice"}) {
		t.Errorf("units that are left: %v", names)
	}
	if uids, err := m.Pods(); err != nil || len(uids) != 0 {
		t.Errorf("pods %v, %v, want none", uids, err)
	}
}

// TestErrorsOfSystemd: a pod's cgroup is not made, with the reason, and is made when systemd
// does it again; so it is after the bus was started again.
func TestErrorsOfSystemd(t *testing.T) {
	if !inOwnMounts(t) {
		return
	}
	fakeUnified(t)
	f := startSystemd(t)
	m := newSystemdManager(t)
	pod := testPod("1-2", guaranteed("cpu", "500m", "memory", "64Mi"))
	const unit = "kubepods-pod1_2.slice"
	for _, test := range []struct{ refusal, result, want string }{
		{"TransactionIsDestructive", "", "refused by the test"},
		{"", "failed", "error creating systemd unit `" + unit + "`: got `failed`"},
	} {
		f.fail(unit, test.refusal, test.result)
		if err := create(m, pod); err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "pod1-2") {
			t.Errorf("%+v: %v", test, err)
		}
	}
	f.fail(unit, "", "")
	if err := create(m, pod); err != nil {
		t.Fatal(err)
	}
	f.stop()
	late := testPod("5-6")
	if err := create(m, late); err == nil || !strings.Contains(err.Error(), "dbus") {
		t.Errorf("without a bus: %v", err)
	}
	f.start()
	for _, p := range []*corev1.Pod{pod, late} {
		if err := create(m, p); err != nil {
			t.Errorf("with a bus again: %v", err)
		}
	}
	if names := f.names(); !slices.Contains(names, "kubepods-besteffort-pod5_6.slice") {
		t.Errorf("units %v lack that of the late pod", names)
	}
	for range 2 { // to remove them again changes nothing
		for _, p := range []*corev1.Pod{pod, late} {
			if err := m.Remove(t.Context(), p.UID); err != nil {
				t.Error(err)
			}
		}
	}
}
