// Package v2beta2 has the types of autoscaling/v2beta2, which Kubernetes 1.26 removed. Its
// fields are those of autoscaling/v2.
//
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.k8s.api.autoscaling.v2beta2
package v2beta2
