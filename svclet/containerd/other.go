//go:build !linux

package containerd

import (
	"context"
	"errors"
	"io"
	"net/netip"
)

var errLinux = errors.New("only Linux runs containers")

type process struct {
	pid   int
	ended chan struct{}
}

func (*process) forget() {}

func (*process) stop(context.Context) error { return errLinux }

func (Config) find() (*process, bool, error) { return nil, false, errLinux }

func lockBridge(string, string) (io.Closer, error) { return nil, errLinux }

func prepare(context.Context, Config) (settings, error) { return settings{}, errLinux }

func (settings) start() (*process, error) { return nil, errLinux }

func (Config) gateways([]string) ([]netip.Addr, error) { return nil, errLinux }

func endOfLog(string) string { return "" }

func limitLog(string) (bool, error) { return false, errLinux }

// Reset is supported on Linux only.
func Reset(context.Context, Config, Leavings) (int, error) { return 0, errLinux }

// RemoveUnmounted is supported on Linux only.
func RemoveUnmounted(context.Context, string) error { return errLinux }

// RemoveRoot is supported on Linux only.
func RemoveRoot(context.Context, string) ([]string, error) { return nil, errLinux }
