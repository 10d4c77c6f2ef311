package core

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

var nodes = resource.Type[*corev1.Node]{
	Name: "nodes", ShortNames: []string{"no"},
	Default:        defaultNode,
	PrepareCreate:  func(_ context.Context, _ *resource.Env, n *corev1.Node) { dropNodeConfig(n) },
	PrepareUpdate:  func(_ context.Context, _ *resource.Env, n, _ *corev1.Node) { dropNodeConfig(n) },
	Validate:       validateNode,
	ValidateUpdate: validateNodeUpdate,
	Warn:           warnNode,
	Status:         true,
	// The agent registers its node together with the node's capacity.
	StatusOnCreate: true,
	PrepareStatus:  func(_ *resource.Env, n, _ *corev1.Node) { dropNodeConfig(n) },
	ValidateStatus: func(n, _ *corev1.Node) field.ErrorList { return validateNodeStatus(n) },
	Fields: map[string]func(*corev1.Node) string{
		"spec.unschedulable": func(n *corev1.Node) string { return strconv.FormatBool(n.Spec.Unschedulable) },
	},
	Connects: []resource.Connect{nodeProxy},
	Columns:  nodeColumns,
}

// defaultNode keeps podCIDR equal to the first of podCIDRs: older clients read
// only podCIDR.
func defaultNode(n *corev1.Node) {
	if cidr := n.Spec.PodCIDR; cidr != "" && (len(n.Spec.PodCIDRs) == 0 || n.Spec.PodCIDRs[0] != cidr) {
		n.Spec.PodCIDRs = []string{cidr}
	}
	if len(n.Spec.PodCIDRs) > 0 {
		n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	}
	podspec.RoundUpToMilli(n.Status.Capacity)
	podspec.RoundUpToMilli(n.Status.Allocatable)
	if n.Status.Allocatable == nil && n.Status.Capacity != nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
}

// dropNodeConfig drops the fields of dynamic kubelet configuration, which was
// removed.
func dropNodeConfig(n *corev1.Node) { n.Spec.ConfigSource, n.Status.Config = nil, nil }

func validateNode(n *corev1.Node) field.ErrorList {
	errs := validateNodeAnnotations(n.Annotations)
	errs = append(errs, validateTaints(n.Spec.Taints, field.NewPath("metadata", "taints"))...)
	errs = append(errs, validateNodeResources(n)...)
	if swap := n.Status.NodeInfo.Swap; swap != nil && swap.Capacity != nil && *swap.Capacity <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("status", "nodeInfo", "swap", "capacity"), *swap.Capacity, "must be greater than zero"))
	}
	path := specPath.Child("podCIDRs")
	for i, cidr := range n.Spec.PodCIDRs {
		errs = append(errs, validation.IsValidCIDRForLegacyField(path.Index(i), cidr, true, nil)...)
	}
	if len(n.Spec.PodCIDRs) > 1 {
		if dual, err := netutils.IsDualStackCIDRStrings(n.Spec.PodCIDRs); err != nil || !dual || len(n.Spec.PodCIDRs) > 2 {
			errs = append(errs, field.Invalid(path, n.Spec.PodCIDRs, "may specify no more than one CIDR for each IP family"))
		}
	}
	return errs
}

var taintEffects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}

func validateTaints(taints []corev1.Taint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.Taint]bool{}
	for i, taint := range taints {
		path := path.Index(i)
		errs = append(errs, metavalidation.ValidateLabelName(taint.Key, path.Child("key"))...)
		if msgs := validation.IsValidLabelValue(taint.Value); len(msgs) > 0 {
			errs = append(errs, field.Invalid(path.Child("value"), taint.Value, strings.Join(msgs, ";")))
		}
		if taint.Effect == "" {
			errs = append(errs, field.Required(path.Child("effect"), ""))
		} else {
			errs = append(errs, resource.OneOf(path.Child("effect"), taint.Effect, taintEffects...)...)
		}
		key := corev1.Taint{Key: taint.Key, Effect: taint.Effect}
		if seen[key] {
			err := field.Duplicate(path, taint)
			err.Detail = "taints must be unique by key and effect pair"
			errs = append(errs, err)
		}
		seen[key] = true
	}
	return errs
}

func validateNodeResources(n *corev1.Node) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		name  string
		items corev1.ResourceList
	}{{"capacity", n.Status.Capacity}, {"allocatable", n.Status.Allocatable}} {
		for _, name := range podspec.SortedNames(list.items) {
			errs = append(errs, podspec.ValidateQuantity(name, list.items[name], field.NewPath("status", list.name, string(name)))...)
		}
	}
	return append(errs, validateDeclaredFeatures(n.Status.DeclaredFeatures)...)
}

func validateNodeStatus(n *corev1.Node) field.ErrorList {
	errs := validateNodeResources(n)
	seen := map[corev1.NodeAddress]bool{}
	for i, address := range n.Status.Addresses {
		if seen[address] {
			errs = append(errs, field.Duplicate(field.NewPath("status", "addresses").Index(i), address))
		}
		seen[address] = true
	}
	return errs
}

// validateNodeUpdate lets the fields that controllers fill in change only from
// unset to set.
func validateNodeUpdate(n, old *corev1.Node) field.ErrorList {
	var errs field.ErrorList
	if len(old.Spec.PodCIDRs) > 0 && !slices.Equal(n.Spec.PodCIDRs, old.Spec.PodCIDRs) {
		errs = append(errs, field.Forbidden(specPath.Child("podCIDRs"), `node updates may not change podCIDR except from "" to valid`))
	}
	if old.Spec.ProviderID != "" && n.Spec.ProviderID != old.Spec.ProviderID {
		errs = append(errs, field.Forbidden(specPath.Child("providerID"), `node updates may not change providerID except from "" to valid`))
	}
	if n.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID {
		errs = append(errs, field.Forbidden(specPath.Child("externalID"), "may not be updated"))
	}
	return errs
}

func warnNode(n, _ *corev1.Node) []string {
	var warnings []string
	if n.Spec.DoNotUseExternalID != "" {
		warnings = append(warnings, "spec.externalID: this field is deprecated, and is unused by Kubernetes")
	}
	for i, cidr := range n.Spec.PodCIDRs {
		warnings = append(warnings, validation.GetWarningsForCIDR(specPath.Child("podCIDRs").Index(i), cidr)...)
	}
	return warnings
}

var nodeColumns = func() []resource.Column[*corev1.Node] {
	info, status := corev1.NodeSystemInfo{}.SwaggerDoc(), corev1.NodeStatus{}.SwaggerDoc()
	return append([]resource.Column[*corev1.Node]{
		resource.Name[*corev1.Node](),
		{Name: "Status", Description: "The status of the node", Value: func(n *corev1.Node) any { return nodeReadiness(n) }},
		{Name: "Roles", Description: "The roles of the node", Value: func(n *corev1.Node) any { return orElse(strings.Join(nodeRoles(n), ","), "<none>") }},
		resource.Age[*corev1.Node](),
		{Name: "Version", Description: info["kubeletVersion"], Value: func(n *corev1.Node) any { return n.Status.NodeInfo.KubeletVersion }},
	}, resource.Wide(
		nodeAddressColumn("Internal-IP", status["addresses"], corev1.NodeInternalIP),
		nodeAddressColumn("External-IP", status["addresses"], corev1.NodeExternalIP),
		resource.Column[*corev1.Node]{Name: "OS-Image", Description: info["osImage"],
			Value: func(n *corev1.Node) any { return orElse(n.Status.NodeInfo.OSImage, "<unknown>") }},
		resource.Column[*corev1.Node]{Name: "Kernel-Version", Description: info["kernelVersion"], Until: 33, Value: func(n *corev1.Node) any {
			return orElse(n.Status.NodeInfo.KernelVersion, "<unknown>")
		}},
		resource.Column[*corev1.Node]{Name: "Kernel-Version", Description: info["kernelVersion"], Since: 34, Value: func(n *corev1.Node) any {
			version := orElse(n.Status.NodeInfo.KernelVersion, "<unknown>")
			if arch := n.Status.NodeInfo.Architecture; arch != "" {
				version += fmt.Sprintf(" (%s)", arch)
			}
			return version
		}},
		resource.Column[*corev1.Node]{Name: "Container-Runtime", Description: info["containerRuntimeVersion"],
			Value: func(n *corev1.Node) any { return orElse(n.Status.NodeInfo.ContainerRuntimeVersion, "<unknown>") }},
	)...)
}()

func nodeAddressColumn(name, description string, kind corev1.NodeAddressType) resource.Column[*corev1.Node] {
	return resource.Column[*corev1.Node]{Name: name, Description: description, Value: func(n *corev1.Node) any {
		for _, address := range n.Status.Addresses {
			if address.Type == kind {
				return address.Address
			}
		}
		return "<none>"
	}}
}

// nodeReadiness returns the Status cell: Ready, NotReady or Unknown, and
// SchedulingDisabled for a node that takes no new pods.
func nodeReadiness(n *corev1.Node) string {
	status := "Unknown"
	for _, condition := range n.Status.Conditions {
		if condition.Type != corev1.NodeReady {
			continue
		}
		if status = "Ready"; condition.Status != corev1.ConditionTrue {
			status = "NotReady"
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

// nodeRoles returns the roles in the node's labels: node-role.kubernetes.io/<role>
// or the value of kubernetes.io/role.
func nodeRoles(n *corev1.Node) []string {
	roles := map[string]bool{}
	for key, value := range n.Labels {
		if role, ok := strings.CutPrefix(key, "node-role.kubernetes.io/"); ok {
			roles[role] = true
		} else if key == "kubernetes.io/role" {
			roles[value] = true
		}
	}
	delete(roles, "")
	return slices.Sorted(maps.Keys(roles))
}

func orElse(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}
