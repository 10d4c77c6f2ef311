package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"svc.dev/svc/controllers"
	"svc.dev/svc/internal/cluster"
	"svc.dev/svc/internal/datadir"
	"svc.dev/svc/test/launch"
)

func TestAFullDiskIsNamed(t *testing.T) {
	full := t.TempDir()
	if err := syscall.Mount("tmpfs", full, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mounting a small file system needs privileges: %v", err)
	}
	defer syscall.Unmount(full, syscall.MNT_DETACH)
	filler, err := os.Create(filepath.Join(full, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}
	dir := filepath.Join(full, "data")
	if _, err := datadir.Dir(dir).Open(); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "the disk under "+dir+" is full: free ") {
		t.Errorf("no room for the lock: %v", err)
	}
	// Some files of the keys and certificates have room, but not all.
	if err := filler.Truncate(32 << 10); err != nil {
		t.Fatal(err)
	}
	var out, errOut strings.Builder
	port, err := launch.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	code := run([]string{"up", "--node=false", "--secure-port=" + port, "--data-dir=" + dir}, &out, &errOut)
	if code != 1 || !strings.HasPrefix(errOut.String(), "svc up: --data-dir: the disk under "+dir+" is full: free ") || strings.Count(errOut.String(), "\n") != 1 {
		t.Errorf("no room for the keys: exit code %d, %s", code, errOut.String())
	}
}

func TestAClusterOfACloudLeavesLoadBalancersAndTheNodeToIt(t *testing.T) {
	for _, test := range []struct {
		controllers []string
		chosen      bool
		want        []string
	}{
		{[]string{"*", "bootstrapsigner", "hostloadbalancer"}, false, []string{"*", "bootstrapsigner"}},
		{[]string{"*", "hostloadbalancer"}, true, []string{"*", "hostloadbalancer"}},
	} {
		u := up{controllers: controllers.NewOptions(), node: cluster.NewNodeOptions()}
		u.controllers.Controllers = test.controllers
		u.leaveToCloud(test.chosen)
		if !u.node.ExternalCloud || !slices.Equal(u.controllers.Controllers, test.want) {
			t.Errorf("chosen %t: a cloud's node: %t, controllers %v, want %v", test.chosen, u.node.ExternalCloud, u.controllers.Controllers, test.want)
		}
	}
}
