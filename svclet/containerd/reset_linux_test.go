package containerd

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"svc.dev/svc/svclet/dns"
	"svc.dev/svc/svclet/nft"
	"svc.dev/svc/svclet/runtime/runtimetest"
)

// ownMounts is set in tests that run in a mount namespace of their own.
const ownMounts = "SVCLET_TEST_MOUNTS"

// mounting runs a test as root in a mount namespace of its own, which removes its mounts
// with it, and in a network namespace of its own. It returns false in the process that only waits for that.
func mounting(t *testing.T) bool {
	t.Helper()
	if os.Getenv(ownMounts) != "" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	self := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.v", "-test.run=^"+t.Name()+"$")
	self.Env = append(os.Environ(), ownMounts+"=yes")
	self.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET}
	out, err := self.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		t.Skip(err)
	}
	if strings.Contains(string(out), "--- SKIP") {
		t.Skip(string(out))
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return false
}

func TestResetKeepsWhatIsMountedBehindASymlink(t *testing.T) {
	if !mounting(t) {
		return
	}
	dir, disk := t.TempDir(), t.TempDir()
	precious, link := filepath.Join(disk, "precious"), filepath.Join(dir, "link")
	target := filepath.Join(dir, "real", "svclet")
	mounted := filepath.Join(target, "pods", "uid", "volumes", "v")
	for _, err := range []error{
		os.WriteFile(precious, nil, 0o600), os.MkdirAll(mounted, 0o700), os.Symlink("real", link),
		unix.Mount(disk, mounted, "", unix.MS_BIND, ""),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	// A parent of the root directory is the symlink.
	pods := filepath.Join(link, "svclet", "pods")
	if err := RemoveUnmounted(t.Context(), pods); err == nil {
		t.Error("a directory with a mount is removed")
	}
	if err := unmountUnder(filepath.Join(link, "svclet")); err != nil {
		t.Fatal(err)
	}
	if err := RemoveUnmounted(t.Context(), pods); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Errorf("what was mounted is removed: %v", err)
	}
	// The directory itself is the symlink.
	if err := RemoveUnmounted(t.Context(), link); err != nil {
		t.Error(err)
	}
	for _, path := range []string{link, filepath.Join(dir, "real")} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	if err := RemoveUnmounted(t.Context(), link); err != nil {
		t.Errorf("a directory that does not exist: %v", err)
	}
}

func TestResetTouchesNothingIfTheRuntimeOfThePodsDoesNotAnswer(t *testing.T) {
	if !mounting(t) {
		return
	}
	dir := t.TempDir()
	volume := filepath.Join(dir, "pods", "uid", "volumes", "v")
	if err := os.MkdirAll(volume, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(t.TempDir(), volume, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	_, err := Reset(t.Context(), Config{Dir: filepath.Join(dir, "containerd")}, Leavings{Dir: dir, Endpoint: filepath.Join(dir, "none.sock")})
	if err == nil {
		t.Error("it succeeds")
	}
	if _, mounts, err := mountsUnder(volume); err != nil || len(mounts) != 1 {
		t.Errorf("the mounts of running pods are now %v, %v", mounts, err)
	}
	if err := unix.Unmount(volume, 0); err != nil {
		t.Error(err)
	}
}

func TestResetOfARuntimeOfTheUsersKeepsTheBridgeOfAnotherNode(t *testing.T) {
	if !mounting(t) {
		return
	}
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	users, err := runtimetest.Start(runtimetest.Options{Socket: filepath.Join(dir, "users.sock")})
	if err != nil {
		t.Fatal(err)
	}
	defer users.Down()
	const another = "table ip svc0\ntable ip svc0-pods\ntable ip svc0-policies\n"
	load := exec.CommandContext(t.Context(), "nft", "-f", "-")
	load.Stdin = strings.NewReader("add table ip svclet\nadd table ip6 svclet-policies\nadd table bridge svclet-policies\nadd " + strings.ReplaceAll(strings.TrimSpace(another), "\n", "\nadd ") + "\n")
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{DefaultBridge, dns.LinkName(DefaultBridge), dns.LinkName("")} {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Reset(t.Context(), Config{Dir: filepath.Join(dir, "containerd")}, Leavings{LogsDir: filepath.Join(dir, "logs"), Endpoint: users.Endpoint()}); err != nil {
		t.Error(err)
	}
	tables, err := exec.CommandContext(t.Context(), "nft", "list", "tables").Output()
	if err != nil || string(tables) != another {
		t.Errorf("the tables are now %q, error %v", tables, err)
	}
	for name, stays := range map[string]bool{DefaultBridge: true, dns.LinkName(DefaultBridge): true, dns.LinkName(""): false} {
		if _, err := netlink.LinkByName(name); (err == nil) != stays {
			t.Errorf("the interface %s: %v", name, err)
		}
	}
}

func TestResetRemovesTheLogsOfThePodsOfAnAgentAndTheLinksToThem(t *testing.T) {
	if !mounting(t) {
		return
	}
	dir := t.TempDir()
	at := func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }
	left := Leavings{Dir: at("agent"), LogsDir: at("logs"), LinksDir: at("links")}
	// The runtime does not know this pod any more.
	ours, others := at("logs", "ns_pod_uid-1", "c", "0.log"), at("logs", "ns_pod_uid-2", "c", "0.log")
	errs := []error{os.MkdirAll(at("agent", "pods", "uid-1"), 0o700), os.MkdirAll(at("links"), 0o700)}
	for i, log := range []string{ours, others, at("logs", "uid-1", "c", "0.log")} {
		errs = append(errs, os.MkdirAll(filepath.Dir(log), 0o700), os.WriteFile(log, nil, 0o600), os.Symlink(log, at("links", strings.Repeat("l", i+1)+".log")))
	}
	errs = append(errs, os.Symlink(at("elsewhere", "ns_pod_uid-1", "c", "0.log"), at("links", "elsewhere.log")), os.WriteFile(at("links", "file.log"), nil, 0o600))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if _, err := Reset(t.Context(), Config{Dir: at("agent", "containerd")}, left); err != nil {
		t.Error(err)
	}
	for path, stays := range map[string]bool{
		filepath.Dir(filepath.Dir(ours)): false, at("links", "l.log"): false,
		others: true, at("links", "ll.log"): true, at("logs", "uid-1"): true, at("links", "lll.log"): true, at("links", "elsewhere.log"): true, at("links", "file.log"): true,
	} {
		if _, err := os.Lstat(path); (err == nil) != stays {
			t.Errorf("%s: %v, must stay: %t", path, err, stays)
		}
	}
}

func TestResetRestoresKernelParameters(t *testing.T) {
	if !mounting(t) {
		return
	}
	dir := t.TempDir()
	const name = "net/ipv4/conf/all/route_localnet"
	if err := errors.Join(nft.SetParameter(name, "0"), nft.NewParameters(dir).Set(name, "1")); err != nil {
		t.Fatal(err)
	}
	value := func() string {
		content, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(content))
	}
	before := value()
	if _, err := Reset(t.Context(), Config{Dir: filepath.Join(dir, "containerd")}, Leavings{Dir: dir, LogsDir: filepath.Join(dir, "logs")}); err != nil {
		t.Error(err)
	}
	if after := value(); before != "1" || after != "0" {
		t.Errorf("%s was %s, and is %s", name, before, after)
	}
}

func TestResetKeepsTheBridgeOfARunningAgent(t *testing.T) {
	if !mounting(t) {
		return
	}
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip(err)
	}
	if out, err := exec.CommandContext(t.Context(), "nft", "add table ip svc0; add table ip svc0-policies; add table ip svc0-pods").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{DefaultBridge, dns.LinkName(DefaultBridge)} {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := lockBridge(DefaultBridge, "")
	if err != nil {
		t.Fatal(err)
	}
	config := Config{Dir: filepath.Join(t.TempDir(), "containerd")}
	reset := func(when, refused string, stays bool) {
		t.Helper()
		_, err := Reset(t.Context(), config, Leavings{LogsDir: filepath.Join(config.Dir, "logs")})
		if (err != nil) != (refused != "") || err != nil && err.Error() != refused {
			t.Errorf("%s: error %v, want %q", when, err, refused)
		}
		tables, err := exec.CommandContext(t.Context(), "nft", "list", "tables").Output()
		if err != nil || (string(tables) != "") != stays {
			t.Errorf("%s: the tables are now %q, error %v", when, tables, err)
		}
		for _, name := range []string{DefaultBridge, dns.LinkName(DefaultBridge)} {
			if _, err := netlink.LinkByName(name); (err == nil) != stays {
				t.Errorf("%s: the interface %s: %v", when, name, err)
			}
		}
	}
	reset("the agent was refused the bridge", "", true)
	if err := os.MkdirAll(config.cniDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := config.writeNetwork(0); err != nil {
		t.Fatal(err)
	}
	const inUse = "the network bridge svc0 is in use by another svclet with a containerd of its own: stop that, and reset again"
	reset("another agent has the bridge now", inUse, true)
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	reset("the other agent has ended", "", false)
	if _, err := os.Stat(config.cniDir()); !os.IsNotExist(err) {
		t.Errorf("the CNI configuration is left: %v", err)
	}
}
