package takeover

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
)

const (
	// broken is the namespace of pods with a device that has a taint.
	broken = "broken"
	// policy is an admission policy whose expression changes.
	policy = "takeover"
	// keptPods is how many pods that have ended are kept.
	keptPods = 12
)

// spare is a node of a round, which is deleted in the next one, and victim its pod with a
// tainted device.
func spare(round int) string  { return fmt.Sprintf("spare-%d", round) }
func victim(round int) string { return fmt.Sprintf("victim-%d", round) }

// pools is a question of a round for the state of a driver's pools, which is deleted in the
// next one.
func pools(round int) string { return fmt.Sprintf("pools-%d", round) }

// beginNodes creates a tainted device, and a policy.
func (w *work) beginNodes(ctx context.Context) error {
	var create metav1.CreateOptions
	if _, err := w.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: meta(broken)}, create); err != nil {
		return err
	}
	if _, err := w.client.ResourceV1().ResourceSlices().Create(ctx, &resourcev1.ResourceSlice{ObjectMeta: meta(broken), Spec: resourcev1.ResourceSliceSpec{
		Driver: driver, NodeName: ptr.To(home(0)), Pool: resourcev1.ResourcePool{Name: "pool", Generation: 1, ResourceSliceCount: 1},
		Devices: []resourcev1.Device{{Name: "one", Taints: []resourcev1.DeviceTaint{{Key: "broken", Effect: resourcev1.DeviceTaintEffectNoExecute}}}},
	}}, create); err != nil {
		return err
	}
	_, err := w.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta(policy), Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		}}}},
		Validations: []admissionv1.Validation{{Expression: "true"}},
	}}, create)
	return err
}

// changeNodes replaces the spare node, creates a pod with the tainted device, changes the
// policy, and asks for a migration.
func (w *work) changeNodes(ctx context.Context) error {
	var create metav1.CreateOptions
	node := &corev1.Node{ObjectMeta: meta(spare(w.round))}
	taint(node)
	if _, err := w.client.CoreV1().Nodes().Create(ctx, node, create); err != nil {
		return err
	}
	expression := fmt.Appendf(nil, `{"spec":{"validations":[{"expression":"object.metadata.name != 'round-%d-refused'"}]}}`, w.round)
	if _, err := w.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Patch(ctx, policy, types.MergePatchType, expression, metav1.PatchOptions{}); err != nil {
		return err
	}
	if _, err := w.client.StoragemigrationV1beta1().StorageVersionMigrations().Create(ctx, &storagemigrationv1beta1.StorageVersionMigration{
		ObjectMeta: meta(spare(w.round)), Spec: storagemigrationv1beta1.StorageVersionMigrationSpec{Resource: metav1.GroupResource{Resource: "podtemplates"}},
	}, create); err != nil {
		return err
	}
	if err := w.breakDevice(ctx); err != nil || w.round == 1 {
		return err
	}
	if err := w.client.ResourceV1().ResourceClaims(broken).Delete(ctx, victim(w.round-1), metav1.DeleteOptions{}); err != nil {
		return err
	}
	return w.client.CoreV1().Nodes().Delete(ctx, spare(w.round-1), metav1.DeleteOptions{})
}

// breakDevice creates a pod to whose claim the tainted device is allocated.
func (w *work) breakDevice(ctx context.Context) error {
	var create metav1.CreateOptions
	name := victim(w.round)
	claim, err := w.client.ResourceV1().ResourceClaims(broken).Create(ctx, &resourcev1.ResourceClaim{ObjectMeta: meta(name), Spec: resourcev1.ResourceClaimSpec{
		Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "one", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "absent"}}}},
	}}, create)
	if err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: meta(name), Spec: template("victim", w.round).Spec}
	pod.Spec.NodeName = home(0)
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: &name}}
	if pod, err = w.client.CoreV1().Pods(broken).Create(ctx, pod, create); err != nil {
		return err
	}
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Request: "one", Driver: driver, Pool: "pool", Device: "one"},
	}}}
	claim.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: pod.UID}}
	_, err = w.client.ResourceV1().ResourceClaims(broken).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	return err
}

// changePools asks for the state of the tainted device's pool.
func (w *work) changePools(ctx context.Context) error {
	requests := w.client.ResourceV1alpha3().ResourcePoolStatusRequests()
	if _, err := requests.Create(ctx, &resourcev1alpha3.ResourcePoolStatusRequest{
		ObjectMeta: meta(pools(w.round)), Spec: resourcev1alpha3.ResourcePoolStatusRequestSpec{Driver: driver},
	}, metav1.CreateOptions{}); err != nil || w.round == 1 {
		return err
	}
	return requests.Delete(ctx, pools(w.round-1), metav1.DeleteOptions{})
}

// answered checks that the question of the round is answered. The API server refuses a second
// answer.
func (w *work) answered(ctx context.Context) error {
	if w.round == 0 {
		return nil
	}
	request, err := w.client.ResourceV1alpha3().ResourcePoolStatusRequests().Get(ctx, pools(w.round), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if request.Status == nil || len(request.Status.Pools) != 1 {
		return fmt.Errorf("%s is not answered with one pool: %+v", request.Name, request.Status)
	}
	return nil
}

// ranged checks that each node has a range of addresses of its own.
func (w *work) ranged(ctx context.Context) error {
	nodes, err := w.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	owners := map[string]string{}
	for _, n := range nodes.Items {
		if n.Spec.PodCIDR == "" {
			return fmt.Errorf("%s has no range of addresses", n.Name)
		}
		if other, taken := owners[n.Spec.PodCIDR]; taken {
			return fmt.Errorf("%s and %s have the range %s", n.Name, other, n.Spec.PodCIDR)
		}
		owners[n.Spec.PodCIDR] = n.Name
	}
	return nil
}

// collected checks that the oldest pods that have ended were deleted, and no others.
func (w *work) collected(ctx context.Context) error {
	if w.round == 0 {
		return nil
	}
	pods, err := w.client.CoreV1().Pods(place).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ended, latest := 0, 0
	for _, p := range pods.Items {
		if !podspec.IsTerminal(p.Status.Phase) {
			continue
		}
		ended++
		if p.Labels["job-name"] == fmt.Sprintf("round-%d", w.round) {
			latest++
		}
	}
	if ended > keptPods || latest != completions {
		return fmt.Errorf("%d pods that have ended are there, want at most %d, and %d of %d of the last job", ended, keptPods, latest, completions)
	}
	return nil
}

// checked checks the policy and the migration, and that the pod with the tainted device has gone.
func (w *work) checked(ctx context.Context) error {
	of, err := w.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, policy, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if of.Status.ObservedGeneration != of.Generation || of.Status.TypeChecking == nil {
		return fmt.Errorf("the policy of generation %d is not checked: %+v", of.Generation, of.Status)
	}
	if w.round == 0 {
		return nil
	}
	migration, err := w.client.StoragemigrationV1beta1().StorageVersionMigrations().Get(ctx, spare(w.round), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !apimeta.IsStatusConditionTrue(migration.Status.Conditions, string(storagemigrationv1beta1.MigrationSucceeded)) {
		return fmt.Errorf("the migration has not succeeded: %+v", migration.Status)
	}
	switch _, err := w.client.CoreV1().Pods(broken).Get(ctx, victim(w.round), metav1.GetOptions{}); {
	case err == nil:
		return errors.New("the pod with the tainted device is there")
	case !apierrors.IsNotFound(err):
		return err
	}
	return nil
}
