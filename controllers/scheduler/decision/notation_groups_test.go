package decision

import (
	"strconv"
	"strings"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// parseGroup parses "name priority=n together": a PodGroup, whose pods are preempted at the same
// time only.
func parseGroup(line string) *schedulingv1beta1.PodGroup {
	name, words := fields(line)
	group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	for _, word := range words {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "priority":
			group.Spec.Priority = ptr.To(int32(must(strconv.Atoi(value))))
		case "together":
			group.Spec.DisruptionMode = &schedulingv1beta1.DisruptionMode{All: &schedulingv1beta1.AllDisruptionMode{}}
		default:
			panic("unknown property " + word)
		}
	}
	return group
}
