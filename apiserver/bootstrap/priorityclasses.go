package bootstrap

import (
	"context"
	"fmt"

	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulingv1client "k8s.io/client-go/kubernetes/typed/scheduling/v1"
)

// systemPriority is the lowest priority of the system's classes. The highest of
// users' classes is half of it.
const systemPriority = 2_000_000_000

// EnsurePriorityClasses creates those of the system's priority classes that do not
// exist.
func EnsurePriorityClasses(ctx context.Context, client schedulingv1client.PriorityClassesGetter) error {
	return each(ctx, systemPriorityClasses(), func(ctx context.Context, class *schedulingv1.PriorityClass) error {
		if err := createIfAbsent(ctx, client.PriorityClasses(), class); err != nil {
			return fmt.Errorf("ensure priority class %s: %w", class.Name, err)
		}
		return nil
	})
}

func systemPriorityClasses() []*schedulingv1.PriorityClass {
	return []*schedulingv1.PriorityClass{
		{
			ObjectMeta:  metav1.ObjectMeta{Name: "system-node-critical"},
			Value:       systemPriority + 1000,
			Description: "Used for system critical pods that must not be moved from their current node.",
		},
		{
			ObjectMeta:  metav1.ObjectMeta{Name: "system-cluster-critical"},
			Value:       systemPriority,
			Description: "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
		},
	}
}
