package runtime

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

// CRI names the signal SIGRTMIN+1 SIGNAL_SIGRTMINPLUS1, and SIGRTMAX-1 SIGNAL_SIGRTMAXMINUS1.
const signalPrefix = "SIGNAL_"

// StopSignal returns CRI's value of the signal that stops a container (lifecycle.stopSignal,
// KEP-4960); without one, the runtime takes that of the image, or SIGTERM.
func StopSignal(c *corev1.Container) runtimeapi.Signal {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT
	}
	name := strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(string(*c.Lifecycle.StopSignal))
	return runtimeapi.Signal(runtimeapi.Signal_value[signalPrefix+name])
}

// translateSignal returns the signal that a runtime reports; nil from runtimes that do not.
func translateSignal(s runtimeapi.Signal) *corev1.Signal {
	name, known := strings.CutPrefix(s.String(), signalPrefix)
	if !known || s == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		return nil
	}
	return ptr.To(corev1.Signal(strings.NewReplacer("PLUS", "+", "MINUS", "-").Replace(name)))
}
