package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource"
)

// Restrict validates a PodSpec by the server's flag --allow-privileged. Path is
// the PodSpec's.
func Restrict(env *resource.Env, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if env.AllowPrivileged {
		return nil
	}
	pod := podHostProcess(spec)
	hostProcesses := false
	errsOf := map[List]field.ErrorList{}
	for at, c := range All(spec) {
		sc := c.SecurityContext
		if sc != nil && ptr.Deref(sc.Privileged, false) {
			errsOf[at.List] = append(errsOf[at.List],
				field.Forbidden(at.Path(path).Child("securityContext", "privileged"), "disallowed by cluster policy"))
		}
		hostProcesses = hostProcesses || ptr.Deref(hostProcess(sc, pod), false)
	}
	// kube-apiserver reports errors of containers first.
	errs := slices.Concat(errsOf[Containers], errsOf[InitContainers], errsOf[EphemeralContainers])
	if hostProcesses {
		errs = append(errs, field.Forbidden(path, "hostProcess containers are disallowed by cluster policy"))
	}
	return errs
}
