package bootstrap

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	networkingv1client "k8s.io/client-go/kubernetes/typed/networking/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// ServiceCIDREventSource is what events of the default ServiceCIDR are reported by.
	ServiceCIDREventSource = "kubernetes-service-cidr-controller"
	// serviceCIDRName is the name of the default ServiceCIDR.
	serviceCIDRName = "kubernetes"
	// serviceCIDRInterval is how often the default ServiceCIDR is checked.
	serviceCIDRInterval = 10 * time.Second
	// seenPause and seenTimeout are for waiting until allocations follow the object.
	seenPause, seenTimeout = 5 * time.Millisecond, 5 * time.Second
)

// ServiceCIDR is the default ServiceCIDR, which has the ranges of the server's flag.
type ServiceCIDR struct {
	Client networkingv1client.ServiceCIDRsGetter
	// CIDRs are the ranges, the primary family first.
	CIDRs  []string
	Clock  clock.PassiveClock
	Events events.EventRecorder
	// Seen reports whether allocations follow an object in this version.
	Seen func(*networkingv1.ServiceCIDR) bool
}

// serviceCIDRKeeper creates the default ServiceCIDR if it does not exist and marks a new one
// as ready. It never changes its ranges, except that those of a second family are added.
type serviceCIDRKeeper struct {
	ServiceCIDR
	// ensured is closed when services can get addresses of the ranges.
	ensured chan struct{}
	// reported are the reasons of the events that this server has sent.
	reported []string
}

func newServiceCIDRKeeper(c ServiceCIDR) *serviceCIDRKeeper {
	return &serviceCIDRKeeper{ServiceCIDR: c, ensured: make(chan struct{})}
}

func (k *serviceCIDRKeeper) step() Step {
	return Step{Name: "start-kubernetes-service-cidr-controller", Interval: serviceCIDRInterval, Ensure: k.ensure}
}

// wait waits until services can get addresses; without a default ServiceCIDR, a nil keeper,
// they always can.
func (k *serviceCIDRKeeper) wait(ctx context.Context) error {
	if k == nil {
		return nil
	}
	select {
	case <-k.ensured:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (k *serviceCIDRKeeper) ensure(ctx context.Context) error {
	object, err := k.written(ctx)
	if err != nil {
		return fmt.Errorf("ensure ServiceCIDR %s: %w", serviceCIDRName, err)
	}
	select {
	case <-k.ensured:
	default:
		// Without it, services may get addresses of other ranges: that must not keep the
		// server from starting.
		err := wait.PollUntilContextTimeout(ctx, seenPause, seenTimeout, true, func(context.Context) (bool, error) { return k.Seen(object), nil })
		if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to wait for the informer of ServiceCIDRs")
		}
		close(k.ensured)
	}
	return nil
}

// written returns the object in its desired state.
func (k *serviceCIDRKeeper) written(ctx context.Context) (*networkingv1.ServiceCIDR, error) {
	client := k.Client.ServiceCIDRs()
	object, err := client.Get(ctx, serviceCIDRName, cached())
	if apierrors.IsNotFound(err) {
		object, err = client.Create(ctx, &networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: serviceCIDRName},
			Spec:       networkingv1.ServiceCIDRSpec{CIDRs: k.CIDRs},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		return nil, err
	}
	action, reason, note := decideServiceCIDR(object, k.CIDRs)
	if reason != "" {
		k.report(object, reason, note)
	}
	object = object.DeepCopy()
	switch action {
	case addFamily:
		object.Spec.CIDRs = k.CIDRs
		object, err = client.Update(ctx, object, metav1.UpdateOptions{})
	case setReady:
		meta.SetStatusCondition(&object.Status.Conditions, metav1.Condition{
			Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue,
			Message: "Kubernetes default Service CIDR is ready", LastTransitionTime: metav1.NewTime(k.Clock.Now()),
		})
		object, err = client.UpdateStatus(ctx, object, metav1.UpdateOptions{})
	case leave:
	}
	return object, err
}

// report sends an event, once for each reason.
func (k *serviceCIDRKeeper) report(object *networkingv1.ServiceCIDR, reason, note string) {
	if slices.Contains(k.reported, reason) {
		return
	}
	k.reported = append(k.reported, reason)
	k.Events.Eventf(object, nil, corev1.EventTypeWarning, reason, "ServiceCIDRSync", "%s", note)
}

// serviceCIDRAction is what to write of the default ServiceCIDR.
type serviceCIDRAction int

const (
	leave serviceCIDRAction = iota
	addFamily
	setReady
)

// decideServiceCIDR returns what to write of the default ServiceCIDR at a server with these
// ranges, and an event, whose reason is empty if there is none.
func decideServiceCIDR(object *networkingv1.ServiceCIDR, cidrs []string) (action serviceCIDRAction, reason, note string) {
	has := object.Spec.CIDRs
	ready := meta.FindStatusCondition(object.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
	switch {
	case len(cidrs) == 2 && len(has) == 1 && cidrs[0] == has[0]:
		return addFamily, "", ""
	case object.DeletionTimestamp != nil: // the controller of ServiceCIDRs writes its status
		return leave, "", ""
	case !slices.Equal(cidrs, has):
		return leave, "KubernetesDefaultServiceCIDRInconsistent",
			fmt.Sprintf("The default ServiceCIDR [%s] does not match the controller flag configurations [%s]", strings.Join(has, " "), strings.Join(cidrs, " "))
	case ready == nil || ready.Status == metav1.ConditionUnknown:
		return setReady, "", ""
	case ready.Status == metav1.ConditionFalse: // only a user can have written it
		return leave, ready.Reason, "Configuration matches, but " + ready.Message
	}
	return leave, "", ""
}
