// Package v1beta1 has the types of policy/v1beta1 that k8s.io/api no longer has: pod
// security policies, which Kubernetes 1.25 removed.
//
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.k8s.api.policy.v1beta1
package v1beta1
