package flowcontrol

import (
	"cmp"
	"fmt"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/util/shufflesharding"

	"svc.dev/svc/apis/resource"
)

// defaultShares is the default of a limited level's concurrency shares.
const defaultShares int32 = 30

// maxQueues is the greatest number of queues of a level.
const maxQueues int32 = 10_000_000

var priorityLevels = resource.Type[*flowcontrolv1.PriorityLevelConfiguration]{
	Name:       "prioritylevelconfigurations",
	Versions:   priorityLevelVersions(),
	Default:    defaultPriorityLevel,
	Validate:   validatePriorityLevel,
	Status:     true,
	StatusOnly: true,
	Generation: true,
	ValidateStatus: func(pl, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
		return validateConditionTypes(pl.Status.Conditions, func(c flowcontrolv1.PriorityLevelConfigurationCondition) string { return string(c.Type) })
	},
	Columns: []resource.Column[*flowcontrolv1.PriorityLevelConfiguration]{
		resource.Name[*flowcontrolv1.PriorityLevelConfiguration](),
		{Name: "Type", Description: flowcontrolv1.PriorityLevelConfigurationSpec{}.SwaggerDoc()["type"],
			Value: func(pl *flowcontrolv1.PriorityLevelConfiguration) any { return string(pl.Spec.Type) }},
		{Name: "NominalConcurrencyShares", Description: flowcontrolv1.LimitedPriorityLevelConfiguration{}.SwaggerDoc()["nominalConcurrencyShares"],
			Value: func(pl *flowcontrolv1.PriorityLevelConfiguration) any {
				if pl.Spec.Limited == nil {
					return "<none>"
				}
				return int64(*pl.Spec.Limited.NominalConcurrencyShares)
			}},
		queuingColumn("Queues", "queues", func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.Queues }),
		queuingColumn("HandSize", "handSize", func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.HandSize }),
		queuingColumn("QueueLengthLimit", "queueLengthLimit", func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.QueueLengthLimit }),
		resource.Age[*flowcontrolv1.PriorityLevelConfiguration](),
	},
}

func queuingColumn(name, property string, value func(*flowcontrolv1.QueuingConfiguration) int32) resource.Column[*flowcontrolv1.PriorityLevelConfiguration] {
	return resource.Column[*flowcontrolv1.PriorityLevelConfiguration]{
		Name: name, Description: flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()[property],
		Value: func(pl *flowcontrolv1.PriorityLevelConfiguration) any {
			if pl.Spec.Limited == nil || pl.Spec.Limited.LimitResponse.Queuing == nil {
				return "<none>"
			}
			return int64(value(pl.Spec.Limited.LimitResponse.Queuing))
		},
	}
}

func defaultPriorityLevel(pl *flowcontrolv1.PriorityLevelConfiguration) {
	if exempt := pl.Spec.Exempt; exempt != nil {
		resource.Fill(&exempt.NominalConcurrencyShares, 0)
		resource.Fill(&exempt.LendablePercent, 0)
	}
	if limited := pl.Spec.Limited; limited != nil {
		resource.Fill(&limited.NominalConcurrencyShares, defaultShares)
		resource.Fill(&limited.LendablePercent, 0)
		if q := limited.LimitResponse.Queuing; q != nil {
			q.Queues = cmp.Or(q.Queues, 64)
			q.HandSize = cmp.Or(q.HandSize, 8)
			q.QueueLengthLimit = cmp.Or(q.QueueLengthLimit, 50)
		}
	}
}

func validatePriorityLevel(pl *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	var errs field.ErrorList
	const key = flowcontrolv1beta3.PriorityLevelPreserveZeroConcurrencySharesKey
	if _, ok := pl.Annotations[key]; ok {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations"), fmt.Sprintf("annotation '%s' is forbidden", key)))
	}
	path := field.NewPath("spec")
	errs = append(errs, validatePriorityLevelType(path, pl)...)
	return append(errs, validateMandatoryLevel(path, pl)...)
}

func validatePriorityLevelType(path *field.Path, pl *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	var errs field.ErrorList
	spec := &pl.Spec
	if (pl.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt) != (spec.Type == flowcontrolv1.PriorityLevelEnablementExempt) {
		errs = append(errs, field.Invalid(path.Child("type"), spec.Type, "must be 'Exempt' if and only if `name` is 'exempt'"))
	}
	switch spec.Type {
	case flowcontrolv1.PriorityLevelEnablementExempt:
		if spec.Limited != nil {
			errs = append(errs, field.Forbidden(path.Child("limited"), "must be nil if the type is not Limited"))
		}
		if e := spec.Exempt; e != nil {
			errs = append(errs, validateShares(path.Child("exempt", "nominalConcurrencyShares"), e.NominalConcurrencyShares)...)
			errs = append(errs, validateLendable(path.Child("exempt", "lendablePercent"), e.LendablePercent)...)
		}
	case flowcontrolv1.PriorityLevelEnablementLimited:
		if spec.Exempt != nil {
			errs = append(errs, field.Forbidden(path.Child("exempt"), "must be nil if the type is Limited"))
		}
		if spec.Limited == nil {
			errs = append(errs, field.Required(path.Child("limited"), "must not be empty when type is Limited"))
		} else {
			errs = append(errs, validateLimited(path.Child("limited"), spec.Limited)...)
		}
	case "":
		errs = append(errs, field.Required(path.Child("type"), ""))
	default:
		errs = append(errs, field.NotSupported(path.Child("type"), spec.Type,
			[]flowcontrolv1.PriorityLevelEnablement{flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited}))
	}
	return errs
}

func validateLimited(path *field.Path, l *flowcontrolv1.LimitedPriorityLevelConfiguration) field.ErrorList {
	errs := validateShares(path.Child("nominalConcurrencyShares"), l.NominalConcurrencyShares)
	errs = append(errs, validateLimitResponse(path.Child("limitResponse"), l.LimitResponse)...)
	errs = append(errs, validateLendable(path.Child("lendablePercent"), l.LendablePercent)...)
	if p := l.BorrowingLimitPercent; p != nil && *p < 0 {
		errs = append(errs, field.Invalid(path.Child("borrowingLimitPercent"), *p, "if specified, must be a non-negative integer"))
	}
	return errs
}

func validateShares(path *field.Path, shares *int32) field.ErrorList {
	if shares != nil && *shares < 0 {
		return field.ErrorList{field.Invalid(path, *shares, "must be a non-negative integer")}
	}
	return nil
}

func validateLendable(path *field.Path, percent *int32) field.ErrorList {
	if percent != nil && (*percent < 0 || *percent > 100) {
		return field.ErrorList{field.Invalid(path, *percent, "must be between 0 and 100, inclusive")}
	}
	return nil
}

func validateLimitResponse(path *field.Path, r flowcontrolv1.LimitResponse) field.ErrorList {
	queuing := path.Child("queuing")
	switch r.Type {
	case flowcontrolv1.LimitResponseTypeReject:
		if r.Queuing != nil {
			return field.ErrorList{field.Forbidden(queuing, "must be nil if limited.limitResponse.type is not Limited")}
		}
		return nil
	case flowcontrolv1.LimitResponseTypeQueue:
		if r.Queuing == nil {
			return field.ErrorList{field.Required(queuing, "must not be empty if limited.limitResponse.type is Limited")}
		}
		return validateQueuing(queuing, r.Queuing)
	case "":
		return field.ErrorList{field.Required(path.Child("type"), "")}
	}
	return resource.OneOf(path.Child("type"), r.Type, flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject)
}

// validateQueuing also requires that shuffle sharding by a 64-bit hash is possible
// with the number of queues and the hand size.
func validateQueuing(path *field.Path, q *flowcontrolv1.QueuingConfiguration) field.ErrorList {
	var errs field.ErrorList
	if q.QueueLengthLimit <= 0 {
		errs = append(errs, field.Invalid(path.Child("queueLengthLimit"), q.QueueLengthLimit, "must be positive"))
	}
	if q.Queues <= 0 {
		errs = append(errs, field.Invalid(path.Child("queues"), q.Queues, "must be positive"))
	} else if q.Queues > maxQueues {
		errs = append(errs, field.Invalid(path.Child("queues"), q.Queues, fmt.Sprintf("must not be greater than %d", maxQueues)))
	}
	hand := path.Child("handSize")
	if q.HandSize <= 0 {
		errs = append(errs, field.Invalid(hand, q.HandSize, "must be positive"))
	} else if q.HandSize > q.Queues {
		errs = append(errs, field.Invalid(hand, q.HandSize, fmt.Sprintf("should not be greater than queues (%d)", q.Queues)))
	} else if shufflesharding.RequiredEntropyBits(int(q.Queues), int(q.HandSize)) > shufflesharding.MaxHashBits {
		errs = append(errs, field.Invalid(hand, q.HandSize, fmt.Sprintf("required entropy bits of deckSize %d and handSize %d should not be greater than %d",
			q.Queues, q.HandSize, shufflesharding.MaxHashBits)))
	}
	return errs
}

// validateMandatoryLevel requires the fixed values of the mandatory levels; only
// spec.exempt of 'exempt' may change.
func validateMandatoryLevel(path *field.Path, pl *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	for _, fixed := range bootstrap.MandatoryPriorityLevelConfigurations {
		if fixed.Name != pl.Name {
			continue
		}
		want, except := fixed.Spec, ""
		if pl.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
			want.Exempt, except = pl.Spec.Exempt, " except the 'spec.exempt' field"
		}
		if !apiequality.Semantic.DeepEqual(pl.Spec, want) {
			return field.ErrorList{field.Invalid(path, pl.Spec, fmt.Sprintf("spec of '%s'%s must equal the fixed value", pl.Name, except))}
		}
	}
	return nil
}
