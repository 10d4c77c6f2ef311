package probe

import (
	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/svclet/expand"
)

// expandCommand replaces $(NAME) in a probe's command by the literal value in the
// container's env; a value from another source is empty. References to unknown
// variables, and $$(NAME), which is an escaped $(NAME), are left to the command.
func expandCommand(command []string, env []corev1.EnvVar) ([]string, error) {
	values := make(map[string]string, len(env))
	for i := range env {
		values[env[i].Name] = env[i].Value
	}
	return expand.Words(command, expand.Lookup(values))
}
