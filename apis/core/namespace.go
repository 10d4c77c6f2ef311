package core

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

var namespaces = resource.Type[*corev1.Namespace]{
	Name: "namespaces", ShortNames: []string{"ns"}, ReturnDeleted: true,
	NameRule:       apivalidation.ValidateNamespaceName,
	Default:        defaultNamespace,
	PrepareCreate:  prepareNamespace,
	PrepareUpdate:  func(_ context.Context, _ *resource.Env, ns, old *corev1.Namespace) { ns.Spec = old.Spec },
	Validate:       validateNamespace,
	Status:         true,
	ValidateStatus: validateNamespaceStatus,
	Views: []resource.View[*corev1.Namespace]{{
		Name: "finalize", NoPatch: true,
		Prepare:  func(_ *resource.Env, ns, old *corev1.Namespace) { ns.Status = old.Status },
		Validate: func(ns, _ *corev1.Namespace) field.ErrorList { return validateFinalize(ns) },
		Resets:   []string{"status"},
	}},
	Terminate: func(ns *corev1.Namespace) { ns.Status.Phase = corev1.NamespaceTerminating },
	Held:      func(ns *corev1.Namespace) bool { return len(ns.Spec.Finalizers) > 0 },
	Fields: map[string]func(*corev1.Namespace) string{
		"status.phase": func(ns *corev1.Namespace) string { return string(ns.Status.Phase) },
	},
	Columns: []resource.Column[*corev1.Namespace]{
		resource.Name[*corev1.Namespace](),
		{Name: "Status", Description: "The status of the namespace",
			Value: func(ns *corev1.Namespace) any { return string(ns.Status.Phase) }},
		resource.Age[*corev1.Namespace](),
	},
}

func defaultNamespace(ns *corev1.Namespace) {
	labelNamespace(ns)
	if ns.Status.Phase == "" {
		ns.Status.Phase = corev1.NamespaceActive
	}
}

// prepareNamespace makes a new namespace active and adds the finalizer that the
// namespace controller removes when the namespace is empty. It sets the name's
// label again: a name made from generateName was not known to defaulting.
func prepareNamespace(_ context.Context, _ *resource.Env, ns *corev1.Namespace) {
	labelNamespace(ns)
	ns.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
}

// labelNamespace sets the label kubernetes.io/metadata.name.
func labelNamespace(ns *corev1.Namespace) {
	if ns.Name == "" || ns.Labels[corev1.LabelMetadataName] == ns.Name {
		return
	}
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
}

func validateNamespace(ns *corev1.Namespace) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "finalizers")
	for _, name := range ns.Spec.Finalizers {
		errs = append(errs, validateFinalizerName(string(name), path)...)
	}
	return errs
}

// validateFinalize has the rules of validateNamespace with the indexes of the
// finalizers in its errors.
func validateFinalize(ns *corev1.Namespace) field.ErrorList {
	var errs field.ErrorList
	for i, name := range ns.Spec.Finalizers {
		errs = append(errs, validateFinalizerName(string(name), field.NewPath("spec", "finalizers").Index(i))...)
	}
	return errs
}

func validateFinalizerName(name string, path *field.Path) field.ErrorList {
	return append(apivalidation.ValidateFinalizerName(name, path), resource.FinalizerName(path, name)...)
}

func validateNamespaceStatus(ns, _ *corev1.Namespace) field.ErrorList {
	path := field.NewPath("status", "Phase")
	switch {
	case ns.DeletionTimestamp.IsZero() && ns.Status.Phase != corev1.NamespaceActive:
		return field.ErrorList{field.Invalid(path, ns.Status.Phase, "may only be 'Active' if `deletionTimestamp` is empty")}
	case !ns.DeletionTimestamp.IsZero() && ns.Status.Phase != corev1.NamespaceTerminating:
		return field.ErrorList{field.Invalid(path, ns.Status.Phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")}
	}
	return nil
}
