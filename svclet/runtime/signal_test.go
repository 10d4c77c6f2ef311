package runtime

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

func TestEverySignalOfCRIHasItsNameInTheAPI(t *testing.T) {
	for _, signal := range []corev1.Signal{corev1.SIGTERM, corev1.SIGUSR1, corev1.SIGRTMIN, corev1.SIGRTMINPLUS15, corev1.SIGRTMAXMINUS14} {
		if c := (&corev1.Container{Lifecycle: &corev1.Lifecycle{StopSignal: &signal}}); StopSignal(c) == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
			t.Errorf("%s is unknown to CRI", signal)
		}
	}
	for value, name := range runtimeapi.Signal_name {
		signal := translateSignal(runtimeapi.Signal(value))
		c := &corev1.Container{Lifecycle: &corev1.Lifecycle{StopSignal: signal}}
		if got := StopSignal(c); got != runtimeapi.Signal(value) {
			t.Errorf("%s is %q, and that is %s", name, ptr.Deref(signal, ""), got)
		}
	}
	if got := StopSignal(&corev1.Container{}); got != runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		t.Errorf("without a lifecycle: %s", got)
	}
	if got := translateSignal(1 << 20); got != nil {
		t.Errorf("an unknown signal is %q", *got)
	}
}
