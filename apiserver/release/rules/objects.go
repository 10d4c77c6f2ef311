package rules

import (
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

var spec = field.NewPath("spec")

// scaleToZero is no fewest number of replicas. Other rules refuse negative ones.
func scaleToZero(obj runtime.Object) field.ErrorList {
	h, ok := obj.(*autoscalingv2.HorizontalPodAutoscaler)
	if !ok || ptr.Deref(h.Spec.MinReplicas, 1) != 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(spec.Child("minReplicas"), *h.Spec.MinReplicas, "must be greater than or equal to 1")}
}

// mixedProtocols are those of one load balancer.
func mixedProtocols(obj runtime.Object) field.ErrorList {
	s, ok := obj.(*corev1.Service)
	if !ok || s.Spec.Type != corev1.ServiceTypeLoadBalancer ||
		!slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Protocol != s.Spec.Ports[0].Protocol }) {
		return nil
	}
	return field.ErrorList{field.Invalid(spec.Child("ports"), s.Spec.Ports, "cannot create an external load balancer with mix protocols")}
}

func preferSame(obj runtime.Object) field.ErrorList {
	s, ok := obj.(*corev1.Service)
	if !ok {
		return nil
	}
	switch at := spec.Child("trafficDistribution"); ptr.Deref(s.Spec.TrafficDistribution, "") {
	case corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode:
		return field.ErrorList{field.NotSupported(at, *s.Spec.TrafficDistribution, []string{corev1.ServiceTrafficDistributionPreferClose})}
	}
	return nil
}

// sctp is not a protocol of ports.
func sctp(obj runtime.Object) field.ErrorList {
	var errs field.ErrorList
	check := func(p *corev1.Protocol, at *field.Path) {
		if ptr.Deref(p, "") == corev1.ProtocolSCTP {
			errs = append(errs, field.NotSupported(at.Child("protocol"), *p, []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}))
		}
	}
	ofPolicy := func(ports []networkingv1.NetworkPolicyPort, rule *field.Path) {
		for i := range ports {
			check(ports[i].Protocol, rule.Child("ports").Index(i))
		}
	}
	switch o := obj.(type) {
	case *corev1.Service:
		for i := range o.Spec.Ports {
			check(&o.Spec.Ports[i].Protocol, spec.Child("ports").Index(i))
		}
	case *corev1.Endpoints:
		for i, subset := range o.Subsets {
			for n := range subset.Ports {
				check(&subset.Ports[n].Protocol, field.NewPath("subsets").Index(i).Child("ports").Index(n))
			}
		}
	case *discoveryv1.EndpointSlice:
		for i := range o.Ports {
			check(o.Ports[i].Protocol, field.NewPath("ports").Index(i))
		}
	case *networkingv1.NetworkPolicy:
		for i, rule := range o.Spec.Ingress {
			ofPolicy(rule.Ports, spec.Child("ingress").Index(i))
		}
		for i, rule := range o.Spec.Egress {
			ofPolicy(rule.Ports, spec.Child("egress").Index(i))
		}
	default:
		eachContainer(obj, func(c *corev1.Container, at *field.Path) {
			for i := range c.Ports {
				check(&c.Ports[i].Protocol, at.Child("ports").Index(i))
			}
		})
	}
	return errs
}

// readWriteOncePod is not an access mode of volumes and claims.
func readWriteOncePod(obj runtime.Object) field.ErrorList {
	check := func(modes []corev1.PersistentVolumeAccessMode, at *field.Path) field.ErrorList {
		if !slices.Contains(modes, corev1.ReadWriteOncePod) {
			return nil
		}
		return field.ErrorList{field.NotSupported(at.Child("accessModes"), corev1.ReadWriteOncePod,
			[]corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce})}
	}
	switch o := obj.(type) {
	case *corev1.PersistentVolume:
		return check(o.Spec.AccessModes, spec)
	case *corev1.PersistentVolumeClaim:
		return check(o.Spec.AccessModes, spec)
	}
	pod, path := podOf(obj)
	if pod == nil {
		return nil
	}
	var errs field.ErrorList
	for i, v := range pod.Volumes {
		if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
			errs = append(errs, check(v.Ephemeral.VolumeClaimTemplate.Spec.AccessModes, path.Child("volumes").Index(i).Child("ephemeral", "volumeClaimTemplate", "spec"))...)
		}
	}
	return errs
}

// affinityOfVolume is the error of another node affinity of a volume.
func affinityOfVolume(obj runtime.Object, err *field.Error) bool {
	_, ok := obj.(*corev1.PersistentVolume)
	return ok && err.Type == field.ErrorTypeInvalid && err.Field == "nodeAffinity"
}

// expansion is any change of what a claim requests.
func expansion(obj, old runtime.Object) field.ErrorList {
	c, ok := obj.(*corev1.PersistentVolumeClaim)
	if !ok || apiequality.Semantic.DeepEqual(c.Spec.Resources, old.(*corev1.PersistentVolumeClaim).Spec.Resources) {
		return nil
	}
	return field.ErrorList{field.Forbidden(spec, "is immutable after creation")}
}

// smallerClaims are claims that request less than before.
func smallerClaims(obj, old runtime.Object) field.ErrorList {
	c, ok := obj.(*corev1.PersistentVolumeClaim)
	if !ok {
		return nil
	}
	size, was := c.Spec.Resources.Requests.Storage(), old.(*corev1.PersistentVolumeClaim).Spec.Resources.Requests.Storage()
	if size.Cmp(*was) >= 0 {
		return nil
	}
	return field.ErrorList{field.Forbidden(spec.Child("resources", "requests", "storage"), "field can not be less than previous value")}
}

func affinityScope(obj runtime.Object) field.ErrorList {
	return scope(obj, corev1.ResourceQuotaScopeCrossNamespacePodAffinity)
}

func attributesScope(obj runtime.Object) field.ErrorList {
	return scope(obj, corev1.ResourceQuotaScopeVolumeAttributesClass)
}

// scope refuses a scope of quotas.
func scope(obj runtime.Object, unsupported corev1.ResourceQuotaScope) field.ErrorList {
	q, ok := obj.(*corev1.ResourceQuota)
	if !ok {
		return nil
	}
	var errs field.ErrorList
	if slices.Contains(q.Spec.Scopes, unsupported) {
		errs = append(errs, field.Invalid(spec.Child("scopes"), q.Spec.Scopes, "unsupported scope"))
	}
	if q.Spec.ScopeSelector != nil {
		at := spec.Child("scopeSelector", "matchExpressions")
		for i, m := range q.Spec.ScopeSelector.MatchExpressions {
			if m.ScopeName == unsupported {
				errs = append(errs, field.Invalid(at.Index(i).Child("scopeName"), m.ScopeName, "unsupported scope"))
			}
		}
	}
	return errs
}
