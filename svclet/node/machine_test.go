package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tree writes files below a new directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestReadMachineReadsTheMachinesResources(t *testing.T) {
	root := tree(t, map[string]string{
		"proc/meminfo":                  "MemTotal:       16384 kB\nMemFree: 1 kB\nSwapTotal:  2048 kB\nHugePages_Total: 3\n",
		"sys/devices/system/cpu/online": "0-3,6\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":    "4\n",
		"sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "0\n",
		"etc/machine-id":                 "machine\n",
		"sys/class/dmi/id/product_uuid":  "system\n",
		"proc/sys/kernel/random/boot_id": "boot\n",
		"proc/sys/kernel/osrelease":      "6.1.0\n",
		"etc/os-release":                 "NAME=x\nPRETTY_NAME=\"An OS 12\"\n",
	})
	got, err := ReadMachine(root, root)
	if err != nil {
		t.Fatal(err)
	}
	if got.Storage <= 0 {
		t.Errorf("storage %d", got.Storage)
	}
	got.Storage = 0
	want := Machine{
		CPUs: 5, Memory: 16 << 20, Swap: 2 << 20, HugePages: map[int64]int64{2 << 20: 4, 1 << 30: 0},
		MachineID: "machine", SystemUUID: "system", BootID: "boot", KernelVersion: "6.1.0", OSImage: "An OS 12",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestReadMachineLeavesUnknownValuesEmpty(t *testing.T) {
	root := tree(t, map[string]string{"proc/meminfo": "MemTotal: 1 kB\n"})
	if got, err := ReadMachine(root, root); err != nil || got.CPUs < 1 || got.OSImage != "Linux" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := ReadMachine(t.TempDir(), root); err == nil {
		t.Error("a machine without memory")
	}
}

func TestCPUListsAreCounted(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-1": 2, "0-3,8-9,12": 7, "": 0, "3-1": 0, "x": 0} {
		if got := countCPUs(list); got != want {
			t.Errorf("%q: %d, not %d", list, got, want)
		}
	}
}
