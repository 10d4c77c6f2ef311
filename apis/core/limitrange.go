package core

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

var limitRanges = resource.Type[*corev1.LimitRange]{
	Name: "limitranges", ShortNames: []string{"limits"}, Namespaced: true,
	CreateOnUpdate: true,
	Default:        defaultLimitRange,
	PrepareCreate:  nameLimitRange,
	Validate:       validateLimitRange,
}

// nameLimitRange names a LimitRange that the client has not named after its UID.
func nameLimitRange(_ context.Context, _ *resource.Env, l *corev1.LimitRange) {
	if l.Name == "" {
		l.Name = string(l.UID)
	}
}

func defaultLimitRange(l *corev1.LimitRange) {
	for i := range l.Spec.Limits {
		item := &l.Spec.Limits[i]
		if item.Type == corev1.LimitTypeContainer {
			// The default limit is the maximum. The default request is the limit, or
			// else the minimum.
			item.Default = fillIn(item.Default, item.Max)
			item.DefaultRequest = fillIn(fillIn(item.DefaultRequest, item.Default), item.Min)
		}
		for _, list := range []corev1.ResourceList{item.Max, item.Min, item.Default, item.DefaultRequest, item.MaxLimitRequestRatio} {
			podspec.RoundUpToMilli(list)
		}
	}
}

// fillIn returns the list with the entries of from that it does not have.
func fillIn(list, from corev1.ResourceList) corev1.ResourceList {
	if list == nil {
		list = corev1.ResourceList{}
	}
	for name, amount := range from {
		if _, ok := list[name]; !ok {
			list[name] = amount.DeepCopy()
		}
	}
	return list
}

func validateLimitRange(l *corev1.LimitRange) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.LimitType]bool{}
	for i := range l.Spec.Limits {
		item, path := &l.Spec.Limits[i], specPath.Child("limits").Index(i)
		errs = append(errs, validateLimitType(item.Type, path.Child("type"))...)
		if seen[item.Type] {
			errs = append(errs, field.Duplicate(path.Child("type"), item.Type))
		}
		seen[item.Type] = true
		errs = append(errs, validateLimitNames(item, path)...)
		for _, name := range limitedResources(item) {
			errs = append(errs, limitsOf(item, name).validate(path)...)
		}
	}
	return errs
}

func validateLimitType(limitType corev1.LimitType, path *field.Path) field.ErrorList {
	if errs := resource.Invalid(path, limitType, validation.IsQualifiedName(string(limitType))); len(errs) > 0 {
		return errs
	}
	switch limitType {
	case corev1.LimitTypePod, corev1.LimitTypeContainer, corev1.LimitTypePersistentVolumeClaim:
		return nil
	}
	if strings.Contains(string(limitType), "/") {
		return nil
	}
	return field.ErrorList{field.Invalid(path, limitType, "must be a standard limit type or fully qualified")}
}

// validateLimitNames validates which resources an item limits, and how.
func validateLimitNames(item *corev1.LimitRangeItem, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	rule := podspec.ValidateResourceName
	if item.Type == corev1.LimitTypePod || item.Type == corev1.LimitTypeContainer {
		rule = podspec.ValidateContainerResourceName
	}
	for _, list := range []struct {
		name     string
		items    corev1.ResourceList
		forOther bool // not for pods
	}{
		{"max", item.Max, false}, {"min", item.Min, false},
		{"default", item.Default, true}, {"defaultRequest", item.DefaultRequest, true},
		{"maxLimitRequestRatio", item.MaxLimitRequestRatio, false},
	} {
		if list.forOther && item.Type == corev1.LimitTypePod {
			if len(list.items) > 0 {
				errs = append(errs, field.Forbidden(path.Child(list.name), "may not be specified when `type` is 'Pod'"))
			}
			continue
		}
		for _, name := range podspec.SortedNames(list.items) {
			errs = append(errs, rule(name, path.Child(list.name).Key(string(name)))...)
		}
	}
	if item.Type == corev1.LimitTypePersistentVolumeClaim {
		_, least := item.Min[corev1.ResourceStorage]
		_, most := item.Max[corev1.ResourceStorage]
		if !least && !most {
			errs = append(errs, field.Required(path.Child("limits"), "either minimum or maximum storage value is required, but neither was provided"))
		}
	}
	return errs
}

// limitedResources returns the resources that the item names in any field.
func limitedResources(item *corev1.LimitRangeItem) []corev1.ResourceName {
	names := map[corev1.ResourceName]bool{}
	for _, list := range []corev1.ResourceList{item.Max, item.Min, item.Default, item.DefaultRequest, item.MaxLimitRequestRatio} {
		for name := range list {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// limits are the fields of an item for one resource; nil if the item has none.
type limits struct {
	name                                     corev1.ResourceName
	min, max, byDefault, request, maxRatioOf *quantity.Quantity
}

func limitsOf(item *corev1.LimitRangeItem, name corev1.ResourceName) limits {
	get := func(list corev1.ResourceList) *quantity.Quantity {
		if amount, ok := list[name]; ok {
			return &amount
		}
		return nil
	}
	l := limits{name: name, min: get(item.Min), max: get(item.Max), maxRatioOf: get(item.MaxLimitRequestRatio)}
	if item.Type != corev1.LimitTypePod {
		l.byDefault, l.request = get(item.Default), get(item.DefaultRequest)
	}
	return l
}

// validate requires min <= request <= default <= max, and a ratio that is
// possible between min and max.
func (l limits) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, order := range []struct {
		small, large *quantity.Quantity
		at           string
		value        *quantity.Quantity
		msg          string
	}{
		{l.min, l.max, "min", l.min, "min value %s is greater than max value %s"},
		{l.min, l.request, "defaultRequest", l.request, "min value %s is greater than default request value %s"},
		{l.request, l.max, "defaultRequest", l.request, "default request value %s is greater than max value %s"},
		{l.request, l.byDefault, "defaultRequest", l.request, "default request value %s is greater than default limit value %s"},
		{l.min, l.byDefault, "default", l.min, "min value %s is greater than default value %s"},
		{l.byDefault, l.max, "default", l.max, "default value %s is greater than max value %s"},
	} {
		if order.small != nil && order.large != nil && order.small.Cmp(*order.large) > 0 {
			errs = append(errs, field.Invalid(path.Child(order.at).Key(string(l.name)), order.value.String(),
				fmt.Sprintf(order.msg, order.small.String(), order.large.String())))
		}
	}
	errs = append(errs, l.validateRatio(path.Child("maxLimitRequestRatio").Key(string(l.name)))...)
	if !podspec.MayOvercommit(l.name) && l.byDefault != nil && l.request != nil && l.byDefault.Cmp(*l.request) != 0 {
		errs = append(errs, field.Invalid(path.Child("defaultRequest").Key(string(l.name)), l.request.String(),
			fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s", l.byDefault.String(), l.request.String(), l.name)))
	}
	return errs
}

func (l limits) validateRatio(path *field.Path) field.ErrorList {
	ratio := l.maxRatioOf
	if ratio == nil {
		return nil
	}
	var errs field.ErrorList
	if ratio.Cmp(*quantity.NewQuantity(1, quantity.DecimalSI)) < 0 {
		errs = append(errs, field.Invalid(path, ratio.String(), fmt.Sprintf("ratio %s is less than 1", ratio.String())))
	}
	if l.min == nil || l.max == nil {
		return errs
	}
	if possible := l.max.AsApproximateFloat64() / l.min.AsApproximateFloat64(); ratio.AsApproximateFloat64() > possible {
		errs = append(errs, field.Invalid(path, ratio.String(), fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(), possible)))
	}
	return errs
}
