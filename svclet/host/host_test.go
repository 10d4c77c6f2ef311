package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// machine writes the files of a machine, and returns their root.
func machine(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const (
	swapsHeading = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
	swapArea     = "/dev/sda2                               partition\t1000\t0\t-2\n"
)

// good is a suitable machine.
func good(change map[string]string) map[string]string {
	files := map[string]string{
		"proc/swaps": swapsHeading, "sys/fs/cgroup/cgroup.controllers": "cpu memory\n", "sys/devices/system/cpu/online": "0-3\n",
		"proc/sys/vm/overcommit_memory": "1\n", "proc/sys/vm/panic_on_oom": "0\n", "proc/sys/kernel/panic": "10\n",
		"proc/sys/kernel/panic_on_oops": "1\n", "proc/sys/kernel/keys/root_maxkeys": "1000000\n", "proc/sys/kernel/keys/root_maxbytes": "25000000\n",
	}
	for name, content := range change {
		if files[name] = content; content == "" {
			delete(files, name)
		}
	}
	return files
}

func TestUnsuitableMachinesAreRefused(t *testing.T) {
	for _, test := range []struct {
		name    string
		files   map[string]string
		options Options
		want    []string
	}{
		{name: "as it has to be", options: Options{FailSwapOn: true, FailCgroupV1: true, ProtectKernelDefaults: true, KillWholeContainers: true, ReservedCPUs: "0,3"}},
		{name: "swap", files: map[string]string{"proc/swaps": swapsHeading + swapArea}, options: Options{FailSwapOn: true},
			want: []string{"the host swaps to /dev/sda2: turn it off with swapoff -a, or set failSwapOn (--fail-swap-on) to false"}},
		{name: "swap is allowed", files: map[string]string{"proc/swaps": swapsHeading + swapArea}},
		{name: "a kernel without swap", files: map[string]string{"proc/swaps": ""}, options: Options{FailSwapOn: true}},
		{name: "cgroup v1", files: map[string]string{"sys/fs/cgroup/cgroup.controllers": ""}, options: Options{FailCgroupV1: true},
			want: []string{"the host has cgroup v1: move it to v2, or set failCgroupV1 to false"}},
		{name: "cgroup v1 cannot kill whole containers", files: map[string]string{"sys/fs/cgroup/cgroup.controllers": ""}, options: Options{KillWholeContainers: true},
			want: []string{"singleProcessOOMKill is false: cgroup v1, which the host has, cannot kill a container as a whole; leave it out"}},
		{name: "cgroup v1 is allowed", files: map[string]string{"sys/fs/cgroup/cgroup.controllers": ""}},
		{name: "CPUs that are not there", options: Options{ReservedCPUs: "3-4"}, want: []string{"reservedSystemCPUs (--reserved-cpus) is 3-4: must be some of the host's CPUs, 0-3"}},
		{name: "kernel settings", files: map[string]string{"proc/sys/vm/overcommit_memory": "0\n", "proc/sys/kernel/panic": ""}, options: Options{ProtectKernelDefaults: true},
			want: []string{
				"protectKernelDefaults (--protect-kernel-defaults): vm.overcommit_memory is 0, not 1: set it with sysctl -w vm.overcommit_memory=1",
				"protectKernelDefaults (--protect-kernel-defaults): read kernel.panic: open ",
			}},
		{name: "all at once", files: map[string]string{"proc/swaps": swapsHeading + swapArea}, options: Options{FailSwapOn: true, ReservedCPUs: "9"},
			want: []string{"the host swaps", "reservedSystemCPUs"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.options.Root = machine(t, good(test.files))
			var got []string
			if err := Check(test.options); err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if len(got) != len(test.want) {
				t.Fatalf("%q, want %q", got, test.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], test.want[i]) {
					t.Errorf("%q, want %q", got[i], test.want[i])
				}
			}
		})
	}
}

func TestKernelSettingsAreSetOnlyWhereTheyDiffer(t *testing.T) {
	o := Options{Root: machine(t, good(map[string]string{"proc/sys/vm/overcommit_memory": "0\n"}))}
	untouched := filepath.Join(o.Root, "proc/sys/kernel/panic")
	if err := os.Chmod(untouched, 0o400); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(untouched)
	if err != nil {
		t.Fatal(err)
	}
	if problems := setTunables(o); len(problems) > 0 {
		t.Errorf("problems: %v", problems)
	}
	after, err := os.Stat(untouched)
	if err != nil {
		t.Fatal(err)
	}
	if !after.ModTime().Equal(before.ModTime()) {
		t.Error("a setting is written that is as it has to be")
	}
	o.ProtectKernelDefaults = true
	if err := Check(o); err != nil {
		t.Errorf("they are not set: %v", err)
	}
}
