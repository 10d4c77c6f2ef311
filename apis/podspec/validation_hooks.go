package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// validateHooks validates the probes and lifecycle hooks of a container.
func (s *podSpec) validateHooks(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.Lifecycle != nil {
		errs = append(errs, s.validateLifecycle(c.Lifecycle, path.Child("lifecycle"))...)
	}
	if c.LivenessProbe != nil {
		errs = append(errs, validateProbe(c.LivenessProbe, path.Child("livenessProbe"))...)
		errs = append(errs, succeedsAtOnce(c.LivenessProbe, path.Child("livenessProbe"))...)
	}
	if c.ReadinessProbe != nil {
		errs = append(errs, validateProbe(c.ReadinessProbe, path.Child("readinessProbe"))...)
		if c.ReadinessProbe.TerminationGracePeriodSeconds != nil {
			errs = append(errs, field.Invalid(path.Child("readinessProbe", "terminationGracePeriodSeconds"),
				*c.ReadinessProbe.TerminationGracePeriodSeconds, "must not be set for readinessProbes"))
		}
	}
	if c.StartupProbe != nil {
		errs = append(errs, validateProbe(c.StartupProbe, path.Child("startupProbe"))...)
		errs = append(errs, succeedsAtOnce(c.StartupProbe, path.Child("startupProbe"))...)
	}
	return errs
}

func (s *podSpec) validateLifecycle(l *corev1.Lifecycle, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if h := l.PostStart; h != nil {
		errs = append(errs, s.validateLifecycleHandler(h, path.Child("postStart"))...)
	}
	if h := l.PreStop; h != nil {
		errs = append(errs, s.validateLifecycleHandler(h, path.Child("preStop"))...)
	}
	if l.StopSignal != nil {
		errs = append(errs, validateStopSignal(*l.StopSignal, s.OS, path.Child("stopSignal"))...)
	}
	return errs
}

func (s *podSpec) validateLifecycleHandler(h *corev1.LifecycleHandler, path *field.Path) field.ErrorList {
	return exactlyOneHandler(path,
		handler{"exec", h.Exec != nil, func(p *field.Path) field.ErrorList { return validateExec(h.Exec, p) }},
		handler{"httpGet", h.HTTPGet != nil, func(p *field.Path) field.ErrorList { return validateHTTPGet(h.HTTPGet, p) }},
		handler{"tcpSocket", h.TCPSocket != nil, func(p *field.Path) field.ErrorList { return validatePortNumOrName(h.TCPSocket.Port, p.Child("port")) }},
		handler{"sleep", h.Sleep != nil, func(p *field.Path) field.ErrorList { return s.validateSleep(h.Sleep, p) }},
	)
}

func validateProbe(probe *corev1.Probe, path *field.Path) field.ErrorList {
	errs := exactlyOneHandler(path,
		handler{"exec", probe.Exec != nil, func(p *field.Path) field.ErrorList { return validateExec(probe.Exec, p) }},
		handler{"httpGet", probe.HTTPGet != nil, func(p *field.Path) field.ErrorList { return validateHTTPGet(probe.HTTPGet, p) }},
		handler{"tcpSocket", probe.TCPSocket != nil, func(p *field.Path) field.ErrorList {
			return validatePortNumOrName(probe.TCPSocket.Port, p.Child("port"))
		}},
		handler{"grpc", probe.GRPC != nil, func(p *field.Path) field.ErrorList {
			return validatePortNumOrName(intstr.FromInt32(probe.GRPC.Port), p.Child("port"))
		}},
	)
	for _, f := range []struct {
		name  string
		value int32
	}{
		{"initialDelaySeconds", probe.InitialDelaySeconds},
		{"timeoutSeconds", probe.TimeoutSeconds},
		{"periodSeconds", probe.PeriodSeconds},
		{"successThreshold", probe.SuccessThreshold},
		{"failureThreshold", probe.FailureThreshold},
	} {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(f.value), path.Child(f.name))...)
	}
	if grace := probe.TerminationGracePeriodSeconds; grace != nil && *grace <= 0 {
		errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), *grace, "must be greater than 0"))
	}
	return errs
}

func succeedsAtOnce(probe *corev1.Probe, path *field.Path) field.ErrorList {
	if probe.SuccessThreshold != 1 {
		return field.ErrorList{field.Invalid(path.Child("successThreshold"), probe.SuccessThreshold, "must be 1")}
	}
	return nil
}

// handler is an action of a probe or hook, and whether it is set.
type handler struct {
	name     string
	set      bool
	validate func(path *field.Path) field.ErrorList
}

func exactlyOneHandler(path *field.Path, handlers ...handler) field.ErrorList {
	var errs field.ErrorList
	chosen := false
	for _, h := range handlers {
		switch {
		case !h.set:
		case chosen:
			errs = append(errs, field.Forbidden(path.Child(h.name), "may not specify more than 1 handler type"))
		default:
			chosen = true
			errs = append(errs, h.validate(path.Child(h.name))...)
		}
	}
	if !chosen {
		errs = append(errs, field.Required(path, "must specify a handler type"))
	}
	return errs
}

func validateExec(exec *corev1.ExecAction, path *field.Path) field.ErrorList {
	if len(exec.Command) == 0 {
		return field.ErrorList{field.Required(path.Child("command"), "")}
	}
	return nil
}

func validateHTTPGet(get *corev1.HTTPGetAction, path *field.Path) field.ErrorList {
	errs := resource.Required(path.Child("path"), get.Path)
	errs = append(errs, validatePortNumOrName(get.Port, path.Child("port"))...)
	errs = append(errs, resource.OptionalOneOf(path.Child("scheme"), &get.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)...)
	for _, header := range get.HTTPHeaders {
		errs = append(errs, resource.Invalid(path.Child("httpHeaders"), header.Name, validation.IsHTTPHeaderName(header.Name))...)
	}
	return errs
}

func validatePortNumOrName(port intstr.IntOrString, path *field.Path) field.ErrorList {
	if port.Type == intstr.String {
		return resource.Invalid(path, port.StrVal, validation.IsValidPortName(port.StrVal))
	}
	return resource.Invalid(path, port.IntValue(), validation.IsValidPortNum(port.IntValue()))
}

func (s *podSpec) validateSleep(sleep *corev1.SleepAction, path *field.Path) field.ErrorList {
	grace := s.TerminationGracePeriodSeconds
	if grace != nil && (sleep.Seconds < 0 || sleep.Seconds > *grace) {
		return field.ErrorList{field.Invalid(path, sleep.Seconds, fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *grace))}
	}
	return nil
}

func validateStopSignal(signal corev1.Signal, os *corev1.PodOS, path *field.Path) field.ErrorList {
	switch {
	case os == nil:
		return field.ErrorList{field.Forbidden(path, "may not be set for containers with empty `spec.os.name`")}
	case os.Name == corev1.Windows:
		return resource.OptionalOneOf(path, &signal, corev1.SIGKILL, corev1.SIGTERM)
	case os.Name == corev1.Linux:
		return resource.OptionalOneOf(path, &signal, linuxSignals...)
	}
	return nil
}

// linuxSignals are the signals that a container of a Linux pod may be stopped
// with.
var linuxSignals = []corev1.Signal{
	corev1.SIGABRT, corev1.SIGALRM, corev1.SIGBUS, corev1.SIGCHLD, corev1.SIGCLD, corev1.SIGCONT, corev1.SIGFPE,
	corev1.SIGHUP, corev1.SIGILL, corev1.SIGINT, corev1.SIGIO, corev1.SIGIOT, corev1.SIGKILL, corev1.SIGPIPE,
	corev1.SIGPOLL, corev1.SIGPROF, corev1.SIGPWR, corev1.SIGQUIT,
	corev1.SIGRTMAX, corev1.SIGRTMAXMINUS1, corev1.SIGRTMAXMINUS10, corev1.SIGRTMAXMINUS11, corev1.SIGRTMAXMINUS12,
	corev1.SIGRTMAXMINUS13, corev1.SIGRTMAXMINUS14, corev1.SIGRTMAXMINUS2, corev1.SIGRTMAXMINUS3, corev1.SIGRTMAXMINUS4,
	corev1.SIGRTMAXMINUS5, corev1.SIGRTMAXMINUS6, corev1.SIGRTMAXMINUS7, corev1.SIGRTMAXMINUS8, corev1.SIGRTMAXMINUS9,
	corev1.SIGRTMIN, corev1.SIGRTMINPLUS1, corev1.SIGRTMINPLUS10, corev1.SIGRTMINPLUS11, corev1.SIGRTMINPLUS12,
	corev1.SIGRTMINPLUS13, corev1.SIGRTMINPLUS14, corev1.SIGRTMINPLUS15, corev1.SIGRTMINPLUS2, corev1.SIGRTMINPLUS3,
	corev1.SIGRTMINPLUS4, corev1.SIGRTMINPLUS5, corev1.SIGRTMINPLUS6, corev1.SIGRTMINPLUS7, corev1.SIGRTMINPLUS8,
	corev1.SIGRTMINPLUS9,
	corev1.SIGSEGV, corev1.SIGSTKFLT, corev1.SIGSTOP, corev1.SIGSYS, corev1.SIGTERM, corev1.SIGTRAP, corev1.SIGTSTP,
	corev1.SIGTTIN, corev1.SIGTTOU, corev1.SIGURG, corev1.SIGUSR1, corev1.SIGUSR2, corev1.SIGVTALRM, corev1.SIGWINCH,
	corev1.SIGXCPU, corev1.SIGXFSZ,
}
