package flowcontrol

import (
	"maps"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta1 "k8s.io/api/flowcontrol/v1beta1"
	flowcontrolv1beta2 "k8s.io/api/flowcontrol/v1beta2"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/apis/resource"
)

// In the beta versions a limited level cannot have zero shares: there 0 means
// unset, and the default is 30. A level with zero shares has an annotation in
// v1beta3, which the hub does not have. v1beta1 and v1beta2 have the annotation, too, so that
// the conversion loses nothing.
const zeroMark = flowcontrolv1beta3.PriorityLevelPreserveZeroConcurrencySharesKey

func withZeroMark(annotations map[string]string) map[string]string {
	marked := map[string]string{zeroMark: ""}
	maps.Copy(marked, annotations)
	return marked
}

func withoutZeroMark(annotations map[string]string) map[string]string {
	if _, marked := annotations[zeroMark]; !marked {
		return annotations
	}
	rest := maps.Clone(annotations)
	delete(rest, zeroMark)
	if len(rest) == 0 {
		return nil
	}
	return rest
}

// v1alpha1 has the fields of v1beta1.
var v1alpha1 = schema.GroupVersion{Group: flowcontrolv1.GroupName, Version: "v1alpha1"}

// priorityLevelVersions are the beta versions, which differ from the hub in the field
// of a limited level's shares.
func priorityLevelVersions() []resource.Version {
	return []resource.Version{
		resource.Convert(
			func(in *flowcontrolv1beta3.PriorityLevelConfiguration, out *flowcontrolv1.PriorityLevelConfiguration) error {
				resource.CopyFields(in, out)
				out.Annotations = withoutZeroMark(in.Annotations)
				if l := in.Spec.Limited; l != nil {
					out.Spec.Limited.NominalConcurrencyShares = sharesFromBeta(l.NominalConcurrencyShares, in.Annotations)
				}
				return nil
			},
			func(in *flowcontrolv1.PriorityLevelConfiguration, out *flowcontrolv1beta3.PriorityLevelConfiguration) error {
				resource.CopyFields(in, out)
				if l := in.Spec.Limited; l != nil {
					out.Spec.Limited.NominalConcurrencyShares, out.Annotations = sharesToBeta(in)
				}
				return nil
			},
		),
		resource.Convert(
			func(in *flowcontrolv1beta2.PriorityLevelConfiguration, out *flowcontrolv1.PriorityLevelConfiguration) error {
				resource.CopyFields(in, out)
				out.Annotations = withoutZeroMark(in.Annotations)
				if l := in.Spec.Limited; l != nil {
					out.Spec.Limited.NominalConcurrencyShares = sharesFromBeta(l.AssuredConcurrencyShares, in.Annotations)
				}
				return nil
			},
			func(in *flowcontrolv1.PriorityLevelConfiguration, out *flowcontrolv1beta2.PriorityLevelConfiguration) error {
				resource.CopyFields(in, out)
				if l := in.Spec.Limited; l != nil {
					out.Spec.Limited.AssuredConcurrencyShares, out.Annotations = sharesToBeta(in)
				}
				return nil
			},
		),
		resource.Convert(
			func(in *flowcontrolv1beta1.PriorityLevelConfiguration, out *flowcontrolv1.PriorityLevelConfiguration) error {
				resource.CopyFields(in, out)
				out.Annotations = withoutZeroMark(in.Annotations)
				if l := in.Spec.Limited; l != nil {
					out.Spec.Limited.NominalConcurrencyShares = sharesFromBeta(l.AssuredConcurrencyShares, in.Annotations)
				}
				return nil
			},
			func(in *flowcontrolv1.PriorityLevelConfiguration, out *flowcontrolv1beta1.PriorityLevelConfiguration) error {
				resource.CopyFields(in, out)
				if l := in.Spec.Limited; l != nil {
					out.Spec.Limited.AssuredConcurrencyShares, out.Annotations = sharesToBeta(in)
				}
				return nil
			},
		),
		resource.Also[flowcontrolv1beta1.PriorityLevelConfiguration](v1alpha1),
	}
}

// sharesFromBeta is nil, for the default, unless the shares are set or marked.
func sharesFromBeta(shares int32, annotations map[string]string) *int32 {
	if _, marked := annotations[zeroMark]; shares == 0 && !marked {
		return nil
	}
	return &shares
}

// sharesToBeta returns the shares and the annotations of a limited level in a beta
// version.
func sharesToBeta(in *flowcontrolv1.PriorityLevelConfiguration) (int32, map[string]string) {
	shares := in.Spec.Limited.NominalConcurrencyShares
	switch {
	case shares == nil:
		return defaultShares, in.Annotations
	case *shares == 0:
		return 0, withZeroMark(in.Annotations)
	}
	return *shares, in.Annotations
}
