// Package limitranger owns the admission plugin LimitRanger of Kubernetes: it sets
// the default requests and limits of a namespace's LimitRanges on new pods, and
// refuses pods and claims that exceed its limits.
// https://kubernetes.io/docs/concepts/policy/limit-range
package limitranger

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/cache"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/clock"

	"svc.dev/svc/apiserver/admission/kindreader"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "LimitRanger"

const (
	// liveTTL is how long the result of a live list is used for a namespace that has
	// no LimitRange in the informer, and liveNamespaces for how many namespaces.
	liveTTL        = 30 * time.Second
	liveNamespaces = 10000
)

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) { return newPlugin(clock.RealClock{}), nil })
}

// plugin applies LimitRanges.
type plugin struct {
	kindreader.Reader[corelisters.LimitRangeLister]
	// live caches the LimitRanges of namespaces for which the informer has none: it
	// may not have seen a new LimitRange yet.
	live *cache.LRUExpireCache
}

var (
	_ admission.MutationInterface   = &plugin{}
	_ admission.ValidationInterface = &plugin{}
)

func newPlugin(clock clock.Clock) *plugin {
	return &plugin{
		Reader: kindreader.New(informer, admission.Create, admission.Update),
		live:   cache.NewLRUExpireCacheWithClock(liveNamespaces, clock),
	}
}

// informer returns the informer of the kind that the plugin reads.
func informer(f informers.SharedInformerFactory) kindreader.Informer[corelisters.LimitRangeLister] {
	return f.Core().V1().LimitRanges()
}

// Admit implements admission.MutationInterface. It sets the defaults of new pods.
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// The Go type is the same for every group domain of the kind.
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || a.GetOperation() != admission.Create || a.GetSubresource() != "" {
		return nil
	}
	ranges, err := p.ranges(ctx, a)
	if err != nil {
		return err
	}
	for _, limitRange := range ranges {
		setDefaults(limitRange, pod)
	}
	return nil
}

// Validate implements admission.ValidationInterface. The resources of a pod change
// only through the subresource resize.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	var check func(corev1.LimitRangeItem) []error
	switch object := a.GetObject().(type) {
	case *corev1.Pod:
		if created := a.GetOperation() == admission.Create && a.GetSubresource() == ""; !created && a.GetSubresource() != "resize" {
			return nil
		}
		check = func(limit corev1.LimitRangeItem) []error { return checkPod(limit, object) }
	case *corev1.PersistentVolumeClaim:
		if old, ok := a.GetOldObject().(*corev1.PersistentVolumeClaim); a.GetSubresource() != "" || ok && old.DeletionTimestamp != nil {
			return nil
		}
		check = func(limit corev1.LimitRangeItem) []error { return checkClaim(limit, object) }
	default:
		return nil
	}
	ranges, err := p.ranges(ctx, a)
	if err != nil {
		return err
	}
	for _, limitRange := range ranges {
		var errs []error
		for _, limit := range limitRange.Spec.Limits {
			errs = append(errs, check(limit)...)
		}
		if len(errs) > 0 {
			return admission.NewForbidden(a, utilerrors.NewAggregate(errs))
		}
	}
	return nil
}

// ranges returns the LimitRanges of the request's namespace, by name.
func (p *plugin) ranges(ctx context.Context, a admission.Attributes) ([]*corev1.LimitRange, error) {
	if err := p.Ready(a); err != nil {
		return nil, err
	}
	found, err := p.Lister.LimitRanges(a.GetNamespace()).List(labels.Everything())
	if err != nil {
		return nil, admission.NewForbidden(a, fmt.Errorf("unable to %s %v at this time because there was an error enforcing limit ranges", a.GetOperation(), a.GetResource()))
	}
	if len(found) == 0 {
		return p.liveRanges(ctx, a)
	}
	slices.SortFunc(found, func(x, y *corev1.LimitRange) int { return strings.Compare(x.Name, y.Name) })
	return found, nil
}

func (p *plugin) liveRanges(ctx context.Context, a admission.Attributes) ([]*corev1.LimitRange, error) {
	if cached, ok := p.live.Get(a.GetNamespace()); ok {
		return cached.([]*corev1.LimitRange), nil
	}
	list, err := p.Client.CoreV1().LimitRanges(a.GetNamespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, admission.NewForbidden(a, err)
	}
	var ranges []*corev1.LimitRange
	for i := range list.Items {
		ranges = append(ranges, &list.Items[i])
	}
	p.live.Add(a.GetNamespace(), ranges, liveTTL)
	return ranges, nil
}
