package agent

import "testing"

func TestContainerRuntimesThatDoNotMountImagesAreTold(t *testing.T) {
	for _, test := range []struct{ name, version, want string }{
		{"containerd", "1.6.20~ds1", "volumes of type image need a container runtime that mounts images: containerd 1.6.20 does not, 2.1.0 and newer ones do"},
		{"containerd", "v2.0.5", "volumes of type image need a container runtime that mounts images: containerd 2.0.5 does not, 2.1.0 and newer ones do"},
		{"containerd", "v2.1.0-rc.1", ""},
		{"containerd", "2.4.2", ""},
		{"containerd", "0123abc.m", ""},
		{"cri-o", "1.30.9", "volumes of type image need a container runtime that mounts images: cri-o 1.30.9 does not, 1.31.0 and newer ones do"},
		{"cri-o", "1.33.0", ""},
		{"another", "0.1.0", ""},
	} {
		got := ""
		if err := mountsImages(test.name, test.version); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s %s: %q, want %q", test.name, test.version, got, test.want)
		}
	}
}
