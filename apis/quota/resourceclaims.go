package quota

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	library "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/devices"
)

const countResourceClaims corev1.ResourceName = "count/resourceclaims.resource.k8s.io"

// Extended reads what the usage of extended resources that device classes offer depends on,
// besides the claims (KEP-5004).
type Extended interface {
	Classes() ([]*resourcev1.DeviceClass, error)
	// Pod returns a pod, or an error of the kind NotFound.
	Pod(namespace, name string) (*corev1.Pod, error)
	// Claims returns the resource claims of a namespace.
	Claims(namespace string) ([]*resourcev1.ResourceClaim, error)
}

// ResourceClaims returns the evaluator of resource claims, which releases from 1.34 on have: it
// measures their number, and that of their devices by device class. Unless extended is nil,
// devices of a class count as the extended resources that the class offers, too.
func ResourceClaims(list generic.ListFuncByNamespace, extended Extended, now func() time.Time) library.Evaluator {
	d := deviceQuota{extended, now}
	e := &evaluator{
		group: resourcev1.GroupName, resource: "resourceclaims",
		measures: d.measures,
		usage:    d.usage,
		handles: func(a admission.Attributes) bool {
			return a.GetSubresource() == "" && (a.GetOperation() == admission.Create || a.GetOperation() == admission.Update)
		},
	}
	return e.with(list)
}

type deviceQuota struct {
	extended Extended
	now      func() time.Time
}

func (d deviceQuota) measures(name corev1.ResourceName) bool {
	if name == countResourceClaims || strings.HasSuffix(string(name), corev1.ResourceClaimsPerClass) {
		return true
	}
	offered, requests := strings.CutPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
	if d.extended == nil || !requests || !devices.IsExtendedResource(corev1.ResourceName(offered)) {
		return false
	}
	classes, err := d.extended.Classes()
	// After an error, usage fails.
	return err != nil || devices.ClassOf(corev1.ResourceName(offered), slices.Values(classes)) != nil
}

func (d deviceQuota) usage(item runtime.Object) (corev1.ResourceList, error) {
	claim, ok := item.(*resourcev1.ResourceClaim)
	if !ok {
		return nil, kindError("resourceclaims", item)
	}
	usage := corev1.ResourceList{countResourceClaims: count(1)}
	byClass := devicesByClass(claim)
	for class, n := range byClass {
		usage[corev1.ResourceName(class+corev1.ResourceClaimsPerClass)] = count(int(n))
	}
	if d.extended == nil || len(byClass) == 0 {
		return usage, nil
	}
	classes, err := d.extended.Classes()
	if err != nil {
		return nil, fmt.Errorf("list device classes: %w", err)
	}
	pod, err := d.usageOfOwner(claim)
	if err != nil {
		return nil, err
	}
	for name, n := range extendedUsage(byClass, classes) {
		// What the pod requests counts with the pod.
		left := count(int(n))
		left.Sub(pod[name])
		if left.Sign() > 0 {
			usage[name] = left
		}
	}
	return usage, nil
}

// devicesByClass returns how many devices of each class a claim may get: of alternatives, the
// one with the most, and of requests for all devices, as many as a claim can have.
func devicesByClass(claim *resourcev1.ResourceClaim) map[string]int64 {
	amount := func(mode resourcev1.DeviceAllocationMode, n int64) int64 {
		if mode == resourcev1.DeviceAllocationModeAll {
			return resourcev1.AllocationResultsMaxSize
		}
		return n
	}
	all := map[string]int64{}
	for _, r := range claim.Spec.Devices.Requests {
		if r.Exactly != nil {
			all[r.Exactly.DeviceClassName] += amount(r.Exactly.AllocationMode, r.Exactly.Count)
		}
		most := map[string]int64{}
		for _, s := range r.FirstAvailable {
			most[s.DeviceClassName] = max(most[s.DeviceClassName], amount(s.AllocationMode, s.Count))
		}
		for class, n := range most {
			all[class] += n
		}
	}
	return all
}

// extendedUsage returns the devices of classes under the names that quotas have for the
// extended resources that the classes offer.
func extendedUsage(byClass map[string]int64, classes []*resourcev1.DeviceClass) map[corev1.ResourceName]int64 {
	all := map[corev1.ResourceName]int64{}
	for class, n := range byClass {
		all[corev1.ResourceName(corev1.ResourceImplicitExtendedClaimsPerClass+class)] += n
	}
	for _, class := range classes {
		if name := ptr.Deref(class.Spec.ExtendedResourceName, ""); name != "" && byClass[class.Name] > 0 {
			all[corev1.ResourceName(corev1.DefaultResourceRequestsPrefix+name)] += byClass[class.Name]
		}
	}
	return all
}

// usageOfOwner returns the usage of the pod for whose extended resources a claim was made; nil
// for other claims, and for a further one of the pod: only the one that the pod names or,
// until it names one, the oldest is exempt from counting twice.
func (d deviceQuota) usageOfOwner(claim *resourcev1.ResourceClaim) (corev1.ResourceList, error) {
	uid := devices.ExtendedClaimOf(claim)
	if uid == "" {
		return nil, nil
	}
	pod, err := d.extended.Pod(claim.Namespace, metav1.GetControllerOfNoCopy(claim).Name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the pod of resource claim %s/%s: %w", claim.Namespace, claim.Name, err)
	case pod.UID != uid:
		return nil, nil
	}
	if named := pod.Status.ExtendedResourceClaimStatus; named != nil {
		if named.ResourceClaimName != claim.Name {
			return nil, nil
		}
		return PodUsage(pod, d.now()), nil
	}
	others, err := d.extended.Claims(claim.Namespace)
	if err != nil {
		return nil, fmt.Errorf("list resource claims: %w", err)
	}
	if slices.ContainsFunc(others, func(other *resourcev1.ResourceClaim) bool {
		return devices.ExtendedClaimOf(other) == uid && isOlder(other, claim)
	}) {
		return nil, nil
	}
	return PodUsage(pod, d.now()), nil
}

// isOlder reports whether another claim was created before a claim, which may be new and have
// no time yet.
func isOlder(other, claim *resourcev1.ResourceClaim) bool {
	switch {
	case other.Name == claim.Name:
		return false
	case claim.CreationTimestamp.IsZero():
		return true
	case other.CreationTimestamp.Equal(&claim.CreationTimestamp):
		return other.Name < claim.Name
	}
	return other.CreationTimestamp.Before(&claim.CreationTimestamp)
}
