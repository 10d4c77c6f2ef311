// Package removed lists the Go types of the versions that k8s.io/api no longer has.
package removed

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime"

	autoscalingv2beta1 "svc.dev/svc/apis/removed/autoscaling/v2beta1"
	autoscalingv2beta2 "svc.dev/svc/apis/removed/autoscaling/v2beta2"
	policyv1beta1 "svc.dev/svc/apis/removed/policy/v1beta1"
)

// Scheme returns the scheme with these types. It must not be changed.
var Scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	autoscalingv2beta1.AddToScheme(s)
	autoscalingv2beta2.AddToScheme(s)
	policyv1beta1.AddToScheme(s)
	return s
})
