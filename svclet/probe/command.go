package probe

import (
	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/svclet/expand"
)

// expandCommand replaces $(NAME) in a probe's command by the value that the
// container's env gives it literally; one that comes from elsewhere is empty.
// References to variables that it has not, and $$(NAME), which stands for
// $(NAME), are left to the command.
func expandCommand(command []string, env []corev1.EnvVar) []string {
	values := make(map[string]string, len(env))
	for i := range env {
		values[env[i].Name] = env[i].Value
	}
	return expand.Words(command, expand.Lookup(values))
}
