package shutdown

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/godbus/dbus/v5"
)

// Names of systemd's D-Bus interfaces (org.freedesktop.login1(5), systemd1(5)).
const (
	loginService = "org.freedesktop.login1"
	loginPath    = dbus.ObjectPath("/org/freedesktop/login1")
	loginManager = loginService + ".Manager"

	systemdService = "org.freedesktop.systemd1"
	systemdPath    = dbus.ObjectPath("/org/freedesktop/systemd1")

	prepareForShutdown = "PrepareForShutdown"
)

// delayFile has the delay that the agent needs, in the directory of logind's
// configuration.
const delayFile = "99-svclet.conf"

// configDir is the directory of drop-ins of logind.conf.
const configDir = "/etc/systemd/logind.conf.d"

// RemoveDelay removes the delay that the agent has given logind, and reports whether there was
// one. logind has it until it reads its configuration again, when it gets SIGHUP.
func RemoveDelay() (removed bool, err error) { return removeDelay(configDir) }

func removeDelay(dir string) (removed bool, err error) {
	err = os.Remove(filepath.Join(dir, delayFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// LogindOptions are the options of [ConnectLogind]. Zero values mean those of the
// machine.
type LogindOptions struct {
	// Bus connects to the system's message bus.
	Bus func(opts ...dbus.ConnOption) (*dbus.Conn, error)
	// ConfigDir is the directory of drop-ins of logind.conf.
	ConfigDir string
}

// logind is systemd's login manager.
type logind struct {
	bus *dbus.Conn
	dir string
}

// ConnectLogind connects to systemd-logind. The connection ends with ctx.
func ConnectLogind(ctx context.Context, o LogindOptions) (Machine, error) {
	if o.Bus == nil {
		o.Bus = dbus.ConnectSystemBus
	}
	if o.ConfigDir == "" {
		o.ConfigDir = configDir
	}
	bus, err := o.Bus(dbus.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("connecting to the system's message bus, for the graceful shutdown of the node: %w", err)
	}
	return &logind{bus: bus, dir: o.ConfigDir}, nil
}

func (l *logind) manager() dbus.BusObject { return l.bus.Object(loginService, loginPath) }

// property reads a property of logind.
func property[T any](ctx context.Context, l *logind, name string) (T, error) {
	var none T
	var value dbus.Variant
	call := l.manager().CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, loginManager, name)
	if err := call.Store(&value); err != nil {
		return none, fmt.Errorf("reading %s of logind: %w", name, err)
	}
	typed, ok := value.Value().(T)
	if !ok {
		return none, fmt.Errorf("%s of logind has the type %s", name, value.Signature())
	}
	return typed, nil
}

// Delay implements Machine.
func (l *logind) Delay(ctx context.Context) (time.Duration, error) {
	microseconds, err := property[uint64](ctx, l, "InhibitDelayMaxUSec")
	return time.Duration(microseconds) * time.Microsecond, err //nolint:gosec // no delay overflows int64
}

// Prepares implements Machine.
func (l *logind) Prepares(ctx context.Context) (bool, error) {
	return property[bool](ctx, l, "PreparingForShutdown")
}

// SetDelay implements Machine.
func (l *logind) SetDelay(ctx context.Context, delay time.Duration) error {
	if err := writeDelay(l.dir, delay); err != nil {
		return err
	}
	// SIGHUP makes logind read its configuration.
	const hangup = 1
	systemd := l.bus.Object(systemdService, systemdPath)
	if err := systemd.CallWithContext(ctx, systemdService+".Manager.KillUnit", 0, "systemd-logind.service", "all", int32(hangup)).Err; err != nil {
		return fmt.Errorf("making logind read its configuration: %w", err)
	}
	return nil
}

func writeDelay(dir string, delay time.Duration) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	content := fmt.Sprintf("# Written by svclet, for the graceful shutdown of the node.\n[Login]\nInhibitDelayMaxSec=%.0f\n", delay.Seconds())
	return os.WriteFile(filepath.Join(dir, delayFile), []byte(content), 0o644)
}

// Inhibit implements Machine.
func (l *logind) Inhibit(ctx context.Context) (io.Closer, error) {
	var fd dbus.UnixFD
	call := l.manager().CallWithContext(ctx, loginManager+".Inhibit", 0, "shutdown", "svclet", "svclet needs time to end the node's pods", "delay")
	if err := call.Store(&fd); err != nil {
		return nil, fmt.Errorf("delaying the shutdown of the node by logind: %w", err)
	}
	return os.NewFile(uintptr(fd), "inhibitor"), nil
}

// Watch implements Machine.
func (l *logind) Watch(ctx context.Context) (<-chan bool, error) {
	err := l.bus.AddMatchSignalContext(ctx, dbus.WithMatchObjectPath(loginPath), dbus.WithMatchInterface(loginManager), dbus.WithMatchMember(prepareForShutdown))
	if err != nil {
		return nil, fmt.Errorf("watching logind for shutdowns: %w", err)
	}
	signals := make(chan *dbus.Signal, 8)
	l.bus.Signal(signals)
	events := make(chan bool)
	go func() { // It ends with the connection, which ends with ctx.
		defer close(events)
		for s := range signals {
			if s.Name != loginManager+"."+prepareForShutdown || len(s.Body) == 0 {
				continue
			}
			if begins, ok := s.Body[0].(bool); ok {
				select {
				case events <- begins:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return events, nil
}
