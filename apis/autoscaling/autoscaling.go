// Package autoscaling declares the kinds of the autoscaling group.
package autoscaling

import "svc.dev/svc/apis/resource"

// Kinds returns the kinds of the autoscaling group.
func Kinds() []resource.Declaration {
	return []resource.Declaration{
		horizontalPodAutoscalers,
	}
}
