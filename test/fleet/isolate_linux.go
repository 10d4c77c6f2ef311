package fleet

import (
	"os"
	"syscall"

	"svc.dev/svc/test/launch"
)

// linksDir is where agents link the logs of containers.
const linksDir = "/var/log/containers"

// isolate gives an agent's process its own mount namespace and directory of links,
// as on its own machine: otherwise every agent would read the thousands of mounts
// and links of all agents. Both end with the agent, which ends with this process.
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
