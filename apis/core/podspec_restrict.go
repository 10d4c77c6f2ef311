package core

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource"
)

var reported = []containerKind{mainContainer, initContainer, ephemeralContainer}

// RestrictPodSpec judges a pod spec by what the server lets pods do (flag
// --allow-privileged); path is the spec's.
func RestrictPodSpec(env *resource.Env, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if env.AllowPrivileged {
		return nil
	}
	var errs field.ErrorList
	pod, onHost := podHostProcess(spec), false
	containers := containersOf(spec)
	// kube-apiserver reports on main containers first.
	slices.SortStableFunc(containers, func(a, b podContainer) int {
		return cmp.Compare(slices.Index(reported, a.Kind), slices.Index(reported, b.Kind))
	})
	for _, c := range containers {
		sc := c.SecurityContext
		if sc != nil && ptr.Deref(sc.Privileged, false) {
			errs = append(errs, field.Forbidden(c.path(path).Child("securityContext", "privileged"), "disallowed by cluster policy"))
		}
		onHost = onHost || ptr.Deref(hostProcess(sc, pod), false)
	}
	if onHost {
		errs = append(errs, field.Forbidden(path, "hostProcess containers are disallowed by cluster policy"))
	}
	return errs
}
