package cgroup

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestTheContainerOfACgroup(t *testing.T) {
	const slice = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b_2c.slice"
	for _, test := range []struct {
		driver Driver
		path   string
		uid    types.UID
		id     string
	}{
		{Cgroupfs, "/kubepods/burstable/pod1b-2c/abc", "1b-2c", "abc"},
		{Cgroupfs, "/kubepods/pod1b-2c/crio-abc", "1b-2c", "abc"},
		{Cgroupfs, "/host/node/kubepods/pod1b-2c/abc/init.scope", "1b-2c", "abc"},
		{Cgroupfs, "/kubepods/pod1b-2c", "", ""},
		{Cgroupfs, "/kubepods/pod1b-2c/", "", ""},
		{Systemd, slice + "/cri-containerd-abc.scope", "1b-2c", "abc"},
		{Systemd, slice + "/crio-abc.scope", "1b-2c", "abc"},
		{Systemd, slice + "/cri-containerd-abc.scope/system.slice/x.service", "1b-2c", "abc"},
		{Systemd, slice, "", ""},
		{Systemd, "/system.slice/svclet.service", "", ""},
		{Systemd, "/", "", ""},
		{Systemd, "", "", ""},
	} {
		uid, id, found := test.driver.Container(test.path)
		if uid != test.uid || id != test.id || found != (test.id != "") {
			t.Errorf("%s %q: pod %q, container %q, %t", test.driver, test.path, uid, id, found)
		}
	}
}
