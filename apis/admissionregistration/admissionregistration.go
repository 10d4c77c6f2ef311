// Package admissionregistration declares the kinds of the admissionregistration.k8s.io group.
package admissionregistration

import "svc.dev/svc/apis/resource"

// Kinds are the kinds of the admissionregistration.k8s.io group.
func Kinds() []resource.Declaration {
	return []resource.Declaration{}
}
