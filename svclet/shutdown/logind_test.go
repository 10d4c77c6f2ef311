package shutdown

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"
	"github.com/onsi/gomega"
)

// fakeLogind serves the parts of logind and systemd that svclet uses, on a real bus.
type fakeLogind struct {
	conn  *dbus.Conn
	props *prop.Properties
	dir   string
	locks chan lock
}

// lock is a lock of the agent; read is its other end, which ends when it is released.
type lock struct{ read, write *os.File }

// Inhibit is logind's.
func (f *fakeLogind) Inhibit(what, _, _, mode string) (dbus.UnixFD, *dbus.Error) {
	read, write, err := os.Pipe()
	if err != nil || what != "shutdown" || mode != "delay" {
		return 0, dbus.MakeFailedError(io.ErrUnexpectedEOF)
	}
	fd := dbus.UnixFD(write.Fd()) //nolint:gosec // a descriptor
	f.locks <- lock{read, write}
	return fd, nil
}

// KillUnit is systemd's: logind reads its configuration.
func (f *fakeLogind) KillUnit(unit, _ string, signal int32) *dbus.Error {
	content, err := os.ReadFile(filepath.Join(f.dir, delayFile))
	if err != nil || unit != "systemd-logind.service" || signal != 1 || !strings.Contains(string(content), "InhibitDelayMaxSec=42\n") {
		return dbus.MakeFailedError(io.ErrUnexpectedEOF)
	}
	f.props.SetMust(loginManager, "InhibitDelayMaxUSec", uint64(42_000_000))
	return nil
}

// startBus starts a message bus, and returns its address.
func startBus(t *testing.T) string {
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("this machine has no dbus-daemon")
	}
	cmd := exec.CommandContext(t.Context(), daemon, "--session", "--nofork", "--print-address", "--address=unix:path="+filepath.Join(t.TempDir(), "bus"))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(address)
}

func TestLogindDelaysShutdownsOverARealBus(t *testing.T) {
	g := gomega.NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	address := startBus(t)
	f := &fakeLogind{dir: t.TempDir(), locks: make(chan lock, 1)}
	var err error
	f.conn, err = dbus.Connect(address)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	defer f.conn.Close()
	f.props, err = prop.Export(f.conn, loginPath, prop.Map{loginManager: {"InhibitDelayMaxUSec": {Value: uint64(5_000_000)}, "PreparingForShutdown": {Value: true}}})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(f.conn.Export(f, loginPath, loginManager)).To(gomega.Succeed())
	g.Expect(f.conn.Export(f, systemdPath, systemdService+".Manager")).To(gomega.Succeed())
	for _, name := range []string{loginService, systemdService} {
		_, err := f.conn.RequestName(name, dbus.NameFlagDoNotQueue)
		g.Expect(err).NotTo(gomega.HaveOccurred())
	}

	machine, err := ConnectLogind(t.Context(), LogindOptions{ConfigDir: f.dir, Bus: func(opts ...dbus.ConnOption) (*dbus.Conn, error) { return dbus.Connect(address, opts...) }})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(machine.Delay(t.Context())).To(gomega.Equal(5 * time.Second))
	g.Expect(machine.SetDelay(t.Context(), 42*time.Second)).To(gomega.Succeed())
	g.Expect(machine.Delay(t.Context())).To(gomega.Equal(42 * time.Second))

	g.Expect(machine.Prepares(t.Context())).To(gomega.BeTrue())
	events, err := machine.Watch(t.Context())
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(f.conn.Emit(loginPath, loginManager+"."+prepareForShutdown, true)).To(gomega.Succeed())
	g.Eventually(events).Should(gomega.Receive(gomega.BeTrue()))

	inhibited, err := machine.Inhibit(t.Context())
	g.Expect(err).NotTo(gomega.HaveOccurred())
	ends := <-f.locks
	defer ends.read.Close()
	g.Expect(ends.write.Close()).To(gomega.Succeed()) // the agent has a copy
	released := make(chan error, 1)
	go func() { _, err := ends.read.Read(make([]byte, 1)); released <- err }()
	g.Consistently(released, "300ms").ShouldNot(gomega.Receive())
	g.Expect(inhibited.Close()).To(gomega.Succeed())
	g.Eventually(released).Should(gomega.Receive(gomega.Equal(io.EOF)))
}

func TestTheDelayOfShutdownsIsRemovedFromTheConfigurationOfLogind(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "absent")
	if removed, err := removeDelay(dir); removed || err != nil {
		t.Errorf("without the file: %t, %v", removed, err)
	}
	if err := writeDelay(dir, 42*time.Second); err != nil {
		t.Fatal(err)
	}
	if removed, err := removeDelay(dir); !removed || err != nil {
		t.Errorf("%t, %v", removed, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
