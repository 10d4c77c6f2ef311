package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	netutils "k8s.io/utils/net"
)

const nfsPlugin = "kubernetes.io~nfs"

// mountCommandTimeout bounds a run of mount(8), which waits for a server that is away.
const mountCommandTimeout = 2 * time.Minute

// mountCommandDelay is how long the output of mount(8) is read after its end: a helper
// that hangs keeps it open.
const mountCommandDelay = time.Second

// runMount runs mount(8), which finds the helper of a file system (mount.nfs).
func runMount(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, mountCommandTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, "mount", args...)
	command.WaitDelay = mountCommandDelay
	output, err := command.CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return fmt.Errorf("mount %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(output)))
}

// mountNFS mounts an export of an NFS server. name is that of the pod's volume, directory
// that of the volume's directory.
func (m *Manager) mountNFS(ctx context.Context, pod *corev1.Pod, name, directory string, source *corev1.NFSVolumeSource, options []string, readOnly bool) (mountedVolume, error) {
	if !isName(directory) {
		return mountedVolume{}, fmt.Errorf("name %q of the volume cannot be a directory's name", directory)
	}
	readOnly = readOnly || source.ReadOnly
	dir := m.layout.volume(pod.UID, nfsPlugin, directory)
	mounted := mountedVolume{name: name, Mounted: Mounted{HostPath: dir, ReadOnly: readOnly}, measure: measureFilesystem}
	there, err := m.Mounter.Mounted(dir)
	if there || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return mounted, err
	}
	if err := os.MkdirAll(dir, privateDir); err != nil {
		return mounted, err
	}
	if readOnly {
		options = append([]string{"ro"}, options...)
	}
	args := []string{"-t", "nfs"}
	if len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	server := source.Server
	if netutils.IsIPv6String(server) {
		server = "[" + server + "]" // nfs(5)
	}
	err = m.MountCommand(ctx, append(args, "--", server+":"+source.Path, dir)...)
	if err != nil {
		err = fmt.Errorf("%w; the node needs the NFS client (on Debian: apt install nfs-common)", err)
	}
	return mounted, err
}
