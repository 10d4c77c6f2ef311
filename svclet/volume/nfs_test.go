package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestExportsOfNFSServersAreMountedOnceByTheMountCommand(t *testing.T) {
	h := newFixture(t)
	var run [][]string
	var fails error
	h.MountCommand = func(_ context.Context, args ...string) error {
		run = append(run, args)
		if fails != nil {
			return fails
		}
		return h.mounter.Mount("nfs", args[len(args)-1], "")
	}
	pod := podOf(volumeOf("v", corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nas", Path: "/export", ReadOnly: true}}))
	for range 2 {
		mounted, err := h.Mount(t.Context(), pod)
		must(t, err)
		dir := filepath.Join(h.RootDir, "pods/u1/volumes/kubernetes.io~nfs/v")
		if m := mounted["v"]; m.HostPath != dir || !m.ReadOnly {
			t.Errorf("%+v", m)
		}
		if want := []string{"-t", "nfs", "-o", "ro", "--", "nas:/export", dir}; len(run) != 1 || !slices.Equal(run[0], want) {
			t.Errorf("mount was run with %v", run)
		}
	}
	must(t, h.Unmount(t.Context(), "u1"))
	if under, err := h.mounter.Under(h.RootDir); err != nil || len(under) > 0 {
		t.Errorf("left: %v, %v", under, err)
	}
	run = nil
	_, err := h.Mount(t.Context(), podOf(volumeOf("v", corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "fd00::1", Path: "/export"}})))
	must(t, err)
	if source := run[0][3]; source != "[fd00::1]:/export" {
		t.Errorf("%s is mounted", source)
	}
	must(t, h.Unmount(t.Context(), "u1"))
	fails = errors.New("mount: bad usage")
	if _, err := h.Mount(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "bad usage; the node needs the NFS client") {
		t.Error(err)
	}
}

func TestFlexVolumesAreMountedByTheirDriver(t *testing.T) {
	h := newFixture(t)
	const program = `#!/bin/sh
case "$1" in
init) echo '{"status": "Success", "capabilities": {"attach": false, "fsGroup": false}}';;
mount) echo "$3" > "$2/options"; echo '{"status": "Success"}';;
unmount) rm "$2/options"; echo '{"status": "Success"}';;
*) echo '{"status": "Not supported"}'; exit 1;;
esac
`
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "vendor~driver"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "vendor~driver", "driver"), []byte(program), 0o755)) //nolint:gosec // a program
	var err error
	h.PluginDir, h.NodeName = dir, "node-1"
	h.Manager, err = New(h.Options)
	must(t, err)
	pod := podOf(volumeOf("v", corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{
		Driver: "vendor/driver", ReadOnly: true, Options: map[string]string{"share": "a"}, SecretRef: &corev1.LocalObjectReference{Name: "login"},
	}}))
	mounted, err := h.Mount(t.Context(), pod)
	must(t, err)
	path := filepath.Join(h.RootDir, "pods/u1/volumes/vendor~driver/v")
	if m := mounted["v"]; m.HostPath != path || !m.ReadOnly || m.Relabel {
		t.Errorf("%+v", m)
	}
	options, err := os.ReadFile(filepath.Join(path, "options"))
	must(t, err)
	for _, want := range []string{`"share":"a"`, `"kubernetes.io/readwrite":"ro"`, `"kubernetes.io/secret/name":"bWU="`} {
		if !strings.Contains(string(options), want) {
			t.Errorf("%s is not in %s", want, options)
		}
	}
	must(t, h.Unmount(t.Context(), "u1"))
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("left: %v", err)
	}
	h.PluginDir = ""
	h.Manager, err = New(h.Options)
	must(t, err)
	if _, err := h.Mount(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "no volume plugin matched") {
		t.Error(err)
	}
}

func TestAHelperOfMountThatHangsIsNotAwaited(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "pid")
	script := "#!/bin/sh\nsleep 1000 &\necho $! >" + file + ".new\nmv " + file + ".new " + file + "\nwait\n"
	must(t, os.WriteFile(filepath.Join(dir, "mount"), []byte(script), 0o700))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runMount(ctx, "-t", "nfs") }()
	content, err := os.ReadFile(file)
	for ; err != nil; content, err = os.ReadFile(file) {
		select {
		case err := <-ended:
			t.Fatalf("ended before the helper ran: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	must(t, err)
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("mount is awaited although its output is kept open")
	}
}
