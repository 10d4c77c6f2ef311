package fleet

import (
	"os"
	"syscall"

	"svc.dev/svc/test/launch"
)

// linksDir is where agents link the logs of containers.
const linksDir = "/var/log/containers"

// isolate gives an agent's process a table of mounts and a directory of links of
// its own, as on a machine of its own: thousands of each would be every agent's
// to read. They are gone with it, and it ends with this process.
func isolate(a *launch.Agent, links string) error {
	for _, dir := range []string{links, linksDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	a.Attributes = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Unshareflags: syscall.CLONE_NEWNS}
	a.Args = append([]string{"-c", `mount --bind "$0" ` + linksDir + ` && exec "$@"`, links, a.Program}, a.Args...)
	a.Program = "/bin/sh"
	return nil
}
