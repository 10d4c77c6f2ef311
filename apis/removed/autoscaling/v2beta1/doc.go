// Package v2beta1 has the types of autoscaling/v2beta1, which Kubernetes 1.25 removed.
// Those of its metrics are also in k8s.io/api/autoscaling/v1, for that version's
// annotations.
//
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.k8s.api.autoscaling.v2beta1
package v2beta1
