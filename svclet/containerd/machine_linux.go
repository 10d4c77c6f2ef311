package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"svc.dev/svc/svclet/host"
)

// prepare creates the directories, and determines what the configuration depends
// on.
func prepare(ctx context.Context, config Config) (settings, error) {
	if os.Geteuid() != 0 {
		return settings{}, errors.New("only root can run containers")
	}
	s := settings{Config: config}
	var err error
	if s.version, err = askVersion(ctx, config.Programs.Containerd); err != nil {
		return s, err
	}
	kind, err := linkType(config.bridge())
	if err != nil {
		return s, err
	}
	if kind != "" && kind != bridgeType {
		return s, fmt.Errorf("the network interface %s exists and is not a bridge: choose another name for the bridge of pods", config.bridge())
	}
	for _, dir := range []string{config.Dir, config.root(), config.cniDir(), config.addressesDir(), config.optDir(), config.runDir()} {
		// Containers of other users need search permission on some of them.
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return s, fmt.Errorf("make the directories of containerd: %w", err)
		}
	}
	if err := config.pass(); err != nil {
		return s, fmt.Errorf("let the users of user namespaces pass the directories of containerd: %w", err)
	}
	if err := config.forgetOtherBoot(); err != nil {
		return s, err
	}
	if s.mayLowerScores, err = host.HasCapability(unix.CAP_SYS_RESOURCE); err != nil {
		return s, err
	}
	may, err := host.MayAdministerNetwork()
	if err != nil {
		return s, err
	}
	s.hostNetworkOnly = !may
	s.snapshotter, err = config.chooseSnapshotter()
	return s, err
}

// snapshotterLine is the line of the configuration that names the snapshotter.
var snapshotterLine = regexp.MustCompile(`(?m)^\s*snapshotter = '(\w+)'$`)

// chooseSnapshotter returns overlayfs, or native where no overlay can be mounted. On a full disk,
// where that cannot be tried, it returns what is configured: running containers and images have
// their files there.
func (c Config) chooseSnapshotter() (string, error) {
	err := tryOverlay(c.root())
	switch {
	case err == nil:
		return "overlayfs", nil
	case !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT):
		return "native", nil
	}
	content, readErr := os.ReadFile(c.configFile())
	if found := snapshotterLine.FindSubmatch(content); readErr == nil && found != nil {
		return string(found[1]), nil
	}
	return "", fmt.Errorf("try to mount an overlay: %w", err)
}

// bridgeType is the type of bridges.
const bridgeType = "bridge"

// linkType returns the type of a network interface, such as "bridge", or "" if it does
// not exist.
func linkType(name string) (string, error) {
	link, err := netlink.LinkByName(name)
	if missing := (netlink.LinkNotFoundError{}); errors.As(err, &missing) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look up the network interface %s: %w", name, err)
	}
	return link.Type(), nil
}

// forgetOtherBoot removes the content of the run directory after a reboot: none of
// its processes and mounts exists any more.
func (c Config) forgetOtherBoot() error {
	now, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fmt.Errorf("read the ID of this boot: %w", err)
	}
	before, err := os.ReadFile(c.bootFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the ID of the boot before: %w", err)
	}
	if before != nil && string(before) != string(now) {
		if err := errors.Join(os.RemoveAll(c.stateDir()), os.RemoveAll(c.tablesFile())); err != nil {
			return fmt.Errorf("remove containerd's state of the boot before: %w", err)
		}
	}
	_, err = replaceFile(c.bootFile(), now)
	return err
}

// tryOverlay mounts an overlay in dir and unmounts it.
func tryOverlay(dir string) (err error) {
	dir, err = os.MkdirTemp(dir, "overlay-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(path(name), 0o700); err != nil {
			return err
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", path("lower"), path("upper"), path("work"))
	if err := unix.Mount("overlay", path("merged"), "overlay", 0, options); err != nil {
		return err
	}
	return unix.Unmount(path("merged"), unix.MNT_DETACH)
}
