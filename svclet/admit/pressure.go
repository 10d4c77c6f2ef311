package admit

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"svc.dev/svc/apis/podspec"
)

// noPressure refuses pods while a resource of the node runs out. Critical pods are
// admitted in any case; under memory pressure alone, so are pods that request resources
// and those that tolerate its taint.
func noPressure(c candidate) *Refusal {
	pressure := c.options.Pressure
	if len(pressure) == 0 || Critical(c.pod) {
		return nil
	}
	if slices.Equal(pressure, []corev1.NodeConditionType{corev1.NodeMemoryPressure}) {
		taint := corev1.Taint{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectNoSchedule}
		_, untolerated := schedulinghelper.FindMatchingUntoleratedTaint(klog.Logger{}, []corev1.Taint{taint}, c.pod.Spec.Tolerations, nil, false)
		if podspec.QOSClassOf(c.pod) != corev1.PodQOSBestEffort || !untolerated {
			return nil
		}
	}
	return &Refusal{Reason: "Evicted", Message: fmt.Sprintf("The node had condition: %v. ", pressure)}
}
