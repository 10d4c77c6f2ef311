package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// The bounds of responders (comments of the form +k8s:maximum=100000 in k8s.io/api). Lower
// priorities are those of Kubernetes' own responders.
const (
	maxEvictionResponders = 10
	minResponderPriority  = 1000
	maxResponderPriority  = 100_000
)

// evictionRespondersAreValid validates who responds to an eviction of the pod (KEP-4563). A pod
// of a group has no responders. In templates, Kubernetes validates only that.
func evictionRespondersAreValid(s *podSpec) field.ErrorList {
	path := s.path.Child("evictionResponders")
	switch {
	case len(s.EvictionResponders) > maxEvictionResponders && s.meta != nil:
		return field.ErrorList{field.TooMany(path, len(s.EvictionResponders), maxEvictionResponders)}
	case len(s.EvictionResponders) > 0 && s.SchedulingGroup != nil:
		return field.ErrorList{field.Forbidden(s.path.Child("schedulingGroup"), "may not be set when evictionResponders is set")}
	case s.meta == nil:
		return nil
	}
	var errs field.ErrorList
	seen := sets.New[string]()
	for i := range s.EvictionResponders {
		r := &s.EvictionResponders[i]
		errs = append(errs, resource.Unique(path.Index(i), r.Name, seen)...)
		errs = append(errs, validateResponder(path.Index(i), r)...)
	}
	return errs
}

func validateResponder(path *field.Path, r *corev1.EvictionResponder) field.ErrorList {
	errs := EvictionParticipantIsValid(path.Child("name"), r.Name)
	errs = append(errs, EvictionParticipantIsNotReserved(path.Child("name"), r.Name)...)
	if r.Priority == nil {
		return append(errs, field.Required(path.Child("priority"), ""))
	}
	return append(errs, ResponderPriorityIsValid(path.Child("priority"), *r.Priority)...)
}

// ResponderPriorityIsValid requires a priority of a responder that is not one of Kubernetes' own.
func ResponderPriorityIsValid(path *field.Path, priority int32) field.ErrorList {
	switch {
	case priority < 0:
		return field.ErrorList{field.Invalid(path, priority, content.MinError(0))}
	case priority < minResponderPriority:
		return field.ErrorList{field.Invalid(path, priority, "priorities 0-999 are reserved for responders with *.k8s.io suffix")}
	case priority > maxResponderPriority:
		return field.ErrorList{field.Invalid(path, priority, content.MaxError(maxResponderPriority))}
	}
	return nil
}

// EvictionParticipantIsValid requires the name of a requester or a responder of evictions, such
// as example.com/a.
func EvictionParticipantIsValid(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return resource.Invalid(path, name, content.IsPrefixedLabelKey(name))
}

// EvictionParticipantIsNotReserved requires a name whose domain is not one of Kubernetes' own.
func EvictionParticipantIsNotReserved(path *field.Path, name string) field.ErrorList {
	domain, _, _ := strings.Cut(name, "/")
	domain = "." + strings.TrimRight(strings.TrimSpace(strings.ToLower(domain)), ".")
	if strings.HasSuffix(domain, ".k8s.io") || strings.HasSuffix(domain, ".kubernetes.io") {
		return field.ErrorList{field.Invalid(path, name, "domain names *.k8s.io, *.kubernetes.io are reserved")}
	}
	return nil
}
