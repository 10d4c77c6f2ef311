package configfile

import (
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/controllers/scheduler/decision"
)

// configurable are the plugins that have arguments.
var configurable = sets.New("DefaultPreemption", "DynamicResources", "InterPodAffinity", "NodeAffinity", "NodeResourcesBalancedAllocation", "NodeResourcesFit", "PodTopologySpread", "VolumeBinding")

// arguments applies the arguments of a plugin.
func (p *parser) arguments(path *field.Path, c *configv1.PluginConfig, profile *decision.Profile) {
	at := path.Child("args")
	switch args := c.Args.Object.(type) {
	case *configv1.DefaultPreemptionArgs:
		p.preemption(at, args, profile)
	case *configv1.DynamicResourcesArgs:
		p.devices(at, args, profile)
	case *configv1.InterPodAffinityArgs:
		if args.HardPodAffinityWeight != nil {
			p.within(at.Child("hardPodAffinityWeight"), int64(*args.HardPodAffinityWeight), 0, 100)
			profile.RequiredWeight = int64(*args.HardPodAffinityWeight)
		}
		profile.IgnorePreferred = args.IgnorePreferredTermsOfExistingPods
	case *configv1.NodeAffinityArgs:
		p.addedAffinity(at.Child("addedAffinity"), args.AddedAffinity, profile)
	case *configv1.NodeResourcesBalancedAllocationArgs:
		profile.Balanced = nil
		for _, resource := range p.resources(at.Child("resources"), args.Resources, 1) {
			profile.Balanced = append(profile.Balanced, resource.Name)
		}
	case *configv1.NodeResourcesFitArgs:
		p.fit(at, args, profile)
	case *configv1.PodTopologySpreadArgs:
		p.spread(at, args, profile)
	case *configv1.VolumeBindingArgs:
		if args.BindTimeoutSeconds != nil {
			if *args.BindTimeoutSeconds < 0 {
				p.invalid(at.Child("bindTimeoutSeconds"), *args.BindTimeoutSeconds, "must not be negative")
			}
			profile.BindTimeout = time.Duration(min(*args.BindTimeoutSeconds, int64(math.MaxInt64/time.Second))) * time.Second
		}
		if len(args.Shape) > 0 {
			profile.VolumeShape = p.points(at.Child("shape"), args.Shape)
		}
	default:
		if configurable.Has(c.Name) {
			p.errs = append(p.errs, field.Required(at, "the arguments of the plugin"))
			return
		}
		p.unsupported(path.Child("name"), "%s has no arguments here; these plugins have: %s", c.Name, strings.Join(sets.List(configurable), ", "))
	}
}

func (p *parser) preemption(at *field.Path, args *configv1.DefaultPreemptionArgs, profile *decision.Profile) {
	percentage, count := ptr.Deref(args.MinCandidateNodesPercentage, 10), ptr.Deref(args.MinCandidateNodesAbsolute, 100)
	p.within(at.Child("minCandidateNodesPercentage"), int64(percentage), 0, 100)
	if count < 0 {
		p.invalid(at.Child("minCandidateNodesAbsolute"), count, "must not be negative")
	}
	if percentage == 0 && count == 0 {
		p.invalid(at.Child("minCandidateNodesAbsolute"), count, "must not be 0 if minCandidateNodesPercentage is")
	}
	profile.MinCandidatePercentage, profile.MinCandidates = int(percentage), int(count)
}

func (p *parser) devices(at *field.Path, args *configv1.DynamicResourcesArgs, profile *decision.Profile) {
	if args.FilterTimeout != nil {
		if args.FilterTimeout.Duration < 0 {
			p.invalid(at.Child("filterTimeout"), args.FilterTimeout.Duration.String(), "must not be negative")
		}
		profile.DeviceSearchTimeout = &args.FilterTimeout.Duration
	}
	if args.BindingTimeout == nil {
		return
	}
	if args.BindingTimeout.Duration < time.Second {
		p.invalid(at.Child("bindingTimeout"), args.BindingTimeout.Duration.String(), "must be at least 1 second")
	}
	profile.DeviceBindTimeout = args.BindingTimeout.Duration
}

func (p *parser) addedAffinity(at *field.Path, affinity *corev1.NodeAffinity, profile *decision.Profile) {
	if affinity == nil {
		return
	}
	if required := affinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		if _, err := nodeaffinity.NewNodeSelector(required, field.WithPath(at.Child("requiredDuringSchedulingIgnoredDuringExecution"))); err != nil {
			p.invalid(at.Child("requiredDuringSchedulingIgnoredDuringExecution"), "", "%v", err)
		}
	}
	preferred := at.Child("preferredDuringSchedulingIgnoredDuringExecution")
	if _, err := nodeaffinity.NewPreferredSchedulingTerms(affinity.PreferredDuringSchedulingIgnoredDuringExecution, field.WithPath(preferred)); err != nil {
		p.invalid(preferred, "", "%v", err)
	}
	profile.AddedAffinity = affinity
}

// resources returns resources with their weights, 1 by default.
func (p *parser) resources(at *field.Path, specs []configv1.ResourceSpec, most int64) []decision.WeightedResource {
	var resources []decision.WeightedResource
	for i, spec := range specs {
		if spec.Name == "" {
			p.errs = append(p.errs, field.Required(at.Index(i).Child("name"), "the name of a resource, such as cpu"))
		}
		if spec.Weight != 0 {
			p.within(at.Index(i).Child("weight"), spec.Weight, 1, most)
		}
		if slices.ContainsFunc(resources, func(r decision.WeightedResource) bool { return string(r.Name) == spec.Name }) {
			p.errs = append(p.errs, field.Duplicate(at.Index(i).Child("name"), spec.Name))
		}
		resources = append(resources, decision.WeightedResource{Name: corev1.ResourceName(spec.Name), Weight: max(spec.Weight, 1)})
	}
	return resources
}

func (p *parser) fit(at *field.Path, args *configv1.NodeResourcesFitArgs, profile *decision.Profile) {
	for i, name := range args.IgnoredResources {
		if !strings.Contains(name, "/") {
			p.invalid(at.Child("ignoredResources").Index(i), name, "must be an extended resource, such as example.com/gpu")
		}
	}
	for i, group := range args.IgnoredResourceGroups {
		if strings.Contains(group, "/") {
			p.invalid(at.Child("ignoredResourceGroups").Index(i), group, "must be the part of a resource's name before the slash")
		}
	}
	profile.IgnoredResources, profile.IgnoredGroups = sets.New(args.IgnoredResources...), sets.New(args.IgnoredResourceGroups...)
	if args.ScoringStrategy == nil {
		return
	}
	c := args.ScoringStrategy
	at = at.Child("scoringStrategy")
	strategy := &decision.Strategy{Type: decision.StrategyType(c.Type), Resources: p.resources(at.Child("resources"), c.Resources, 100)}
	if len(strategy.Resources) == 0 {
		strategy.Resources = []decision.WeightedResource{{Name: corev1.ResourceCPU, Weight: 1}, {Name: corev1.ResourceMemory, Weight: 1}}
	}
	switch strategy.Type {
	case decision.LeastAllocated, decision.MostAllocated:
		if c.RequestedToCapacityRatio != nil {
			p.invalid(at.Child("requestedToCapacityRatio"), "", "must not be set with the type %s", c.Type)
		}
	case decision.RequestedToCapacityRatio:
		strategy.Shape = p.shape(at.Child("requestedToCapacityRatio", "shape"), c.RequestedToCapacityRatio)
	default:
		p.errs = append(p.errs, field.NotSupported(at.Child("type"), c.Type, []configv1.ScoringStrategyType{configv1.LeastAllocated, configv1.MostAllocated, configv1.RequestedToCapacityRatio}))
	}
	profile.Strategy = strategy
}

// maxCustomScore is the maximum of scores in a file.
const maxCustomScore = 10

func (p *parser) shape(at *field.Path, c *configv1.RequestedToCapacityRatioParam) []decision.ShapePoint {
	if c == nil || len(c.Shape) == 0 {
		p.errs = append(p.errs, field.Required(at, "at least one point"))
		return nil
	}
	return p.points(at, c.Shape)
}

// points returns the points of a shape.
func (p *parser) points(at *field.Path, points []configv1.UtilizationShapePoint) []decision.ShapePoint {
	var shape []decision.ShapePoint
	for i, point := range points {
		p.within(at.Index(i).Child("utilization"), int64(point.Utilization), 0, 100)
		p.within(at.Index(i).Child("score"), int64(point.Score), 0, maxCustomScore)
		if i > 0 && point.Utilization <= points[i-1].Utilization {
			p.invalid(at.Index(i).Child("utilization"), point.Utilization, "must be greater than that of the point before")
		}
		shape = append(shape, decision.ShapePoint{Utilization: int64(point.Utilization), Score: int64(point.Score) * 100 / maxCustomScore})
	}
	return shape
}

func (p *parser) spread(at *field.Path, args *configv1.PodTopologySpreadArgs, profile *decision.Profile) {
	switch args.DefaultingType {
	case configv1.ListDefaulting:
		profile.ListDefaulting = true
	case configv1.SystemDefaulting, "":
		if len(args.DefaultConstraints) > 0 {
			p.invalid(at.Child("defaultingType"), args.DefaultingType, "must be List when defaultConstraints are set")
		}
		return
	default:
		p.errs = append(p.errs, field.NotSupported(at.Child("defaultingType"), args.DefaultingType, []configv1.PodTopologySpreadConstraintsDefaulting{configv1.ListDefaulting, configv1.SystemDefaulting}))
		return
	}
	for i := range args.DefaultConstraints {
		p.constraint(at.Child("defaultConstraints").Index(i), &args.DefaultConstraints[i])
	}
	profile.DefaultConstraints = args.DefaultConstraints
}

func (p *parser) constraint(at *field.Path, c *corev1.TopologySpreadConstraint) {
	if c.MaxSkew < 1 {
		p.invalid(at.Child("maxSkew"), c.MaxSkew, "must be greater than 0")
	}
	if c.TopologyKey == "" {
		p.errs = append(p.errs, field.Required(at.Child("topologyKey"), "the label of nodes by which pods are spread"))
	}
	if c.WhenUnsatisfiable != corev1.DoNotSchedule && c.WhenUnsatisfiable != corev1.ScheduleAnyway {
		p.errs = append(p.errs, field.NotSupported(at.Child("whenUnsatisfiable"), c.WhenUnsatisfiable, []corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway}))
	}
	if c.LabelSelector != nil {
		p.errs = append(p.errs, field.Forbidden(at.Child("labelSelector"), "must not be set: it is that of the pods' service or controller"))
	}
	if c.MinDomains != nil || c.NodeAffinityPolicy != nil || c.NodeTaintsPolicy != nil || len(c.MatchLabelKeys) > 0 {
		p.unsupported(at, "a default constraint has only maxSkew, topologyKey and whenUnsatisfiable")
	}
}
