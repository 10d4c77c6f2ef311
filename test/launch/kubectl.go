package launch

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
)

// Kubectl runs kubectl against a server: the one built into svc or, when
// $KUBECTL names one, that.
type Kubectl struct {
	// Kubeconfig is the file that names the server.
	Kubeconfig string
	// Home is the directory for kubectl's caches, which must not outlive a server.
	Home string
	// Namespace, if set, is passed to every command that names none itself.
	Namespace string
	// Env is added to the command's environment ("EDITOR=...").
	Env []string
}

// Command is a kubectl command that has not started yet.
func (k Kubectl) Command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	if k.Namespace != "" && !namesNamespace(args) {
		// In front of "--", after which everything is an argument.
		at := len(args)
		for i, arg := range args {
			if arg == "--" {
				at = i
				break
			}
		}
		args = append(args[:at:at], append([]string{"--namespace=" + k.Namespace}, args[at:]...)...)
	}
	program := os.Getenv("KUBECTL")
	if program == "" {
		svc, err := Binary()
		if err != nil {
			return nil, err
		}
		program, args = svc, append([]string{"kubectl"}, args...)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+k.Kubeconfig, "HOME="+k.Home, "KUBECACHEDIR="+k.Home)
	cmd.Env = append(cmd.Env, k.Env...)
	return cmd, nil
}

// Run runs a command to its end.
func (k Kubectl) Run(ctx context.Context, stdin string, args ...string) (stdout, stderr string, err error) {
	cmd, err := k.Command(ctx, args...)
	if err != nil {
		return "", "", err
	}
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
	err = cmd.Run()
	return out.String(), errOut.String(), err
}

func namesNamespace(args []string) bool {
	for _, arg := range args {
		if arg == "-n" || arg == "-A" || arg == "--all-namespaces" || strings.HasPrefix(arg, "--namespace") {
			return true
		}
	}
	return false
}
