package node

import (
	nodev1 "k8s.io/api/node/v1"
	nodev1alpha1 "k8s.io/api/node/v1alpha1"

	"svc.dev/svc/apis/resource"
)

// In v1alpha1 the fields of a class are in a spec, and its handler is runtimeHandler.

func classFromV1alpha1(in *nodev1alpha1.RuntimeClass, out *nodev1.RuntimeClass) error {
	out.ObjectMeta, out.Handler = in.ObjectMeta, in.Spec.RuntimeHandler
	spec := struct {
		Overhead   *nodev1.Overhead
		Scheduling *nodev1.Scheduling
	}{}
	resource.CopyFields(&in.Spec, &spec)
	out.Overhead, out.Scheduling = spec.Overhead, spec.Scheduling
	return nil
}

func classToV1alpha1(in *nodev1.RuntimeClass, out *nodev1alpha1.RuntimeClass) error {
	out.ObjectMeta = in.ObjectMeta
	resource.CopyFields(in, &out.Spec)
	out.Spec.RuntimeHandler = in.Handler
	return nil
}
