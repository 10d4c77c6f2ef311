package flowcontrol

import (
	"maps"

	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
)

// In the beta versions a limited level cannot have zero shares: there 0 means
// unset, and the default is 30. A level with zero shares has an annotation in
// v1beta3, which the hub does not have. v1beta2 has the annotation, too, so that
// the conversion loses nothing.
const zeroMark = flowcontrolv1beta3.PriorityLevelPreserveZeroConcurrencySharesKey

// sharesFromBeta is nil, for the default, unless the shares are set or marked.
func sharesFromBeta(shares int32, annotations map[string]string) *int32 {
	if _, marked := annotations[zeroMark]; shares == 0 && !marked {
		return nil
	}
	return &shares
}

func sharesToBeta(shares *int32) int32 {
	if shares == nil {
		return defaultShares
	}
	return *shares
}

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

// each converts the elements of a slice; nil stays nil.
func each[From, To any](from []From, convert func(From) To) []To {
	if from == nil {
		return nil
	}
	to := make([]To, len(from))
	for i := range from {
		to[i] = convert(from[i])
	}
	return to
}
