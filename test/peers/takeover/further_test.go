package takeover

import (
	"context"
	"errors"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	// taintedNode is a node from which pods are evicted.
	taintedNode = "tainted"
	// aggregated is a cluster role that gets the rules of one more role in each round.
	aggregated = "takeover"
	// mirrored is a service without a selector, whose Endpoints change.
	mirrored = "mirrored"
	// scaled is a replication controller with an autoscaler.
	scaled = "scaled"

	// devices is a template of claims of devices, from which each scratch pod gets one.
	devices = "devices"

	ttlAnnotation = "node.alpha.kubernetes.io/ttl"
)

// taint makes a node the tainted one.
func taint(node *corev1.Node) {
	node.Spec.Taints = []corev1.Taint{{Key: "takeover", Effect: corev1.TaintEffectNoExecute}}
}

// scratch is a pod of a round with an ephemeral volume, which is deleted in the next round.
func scratch(round int) string { return fmt.Sprintf("scratch-%d", round) }

// replicas is how many pods the autoscaler is to have.
func (w *work) replicas() int32 { return int32(1 + w.round%2) }

// beginFurther creates what the controllers of nodes, volumes and scaling work on.
func (w *work) beginFurther(ctx context.Context) error {
	var create metav1.CreateOptions
	if _, err := w.client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta(aggregated), AggregationRule: &rbacv1.AggregationRule{
		ClusterRoleSelectors: []metav1.LabelSelector{*selects(aggregated)},
	}}, create); err != nil {
		return err
	}
	if _, err := w.client.CoreV1().Services(place).Create(ctx, &corev1.Service{ObjectMeta: meta(mirrored), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, create); err != nil {
		return err
	}
	if _, err := w.client.CoreV1().Endpoints(place).Create(ctx, &corev1.Endpoints{ObjectMeta: meta(mirrored), Subsets: w.subsets()}, create); err != nil {
		return err
	}
	if _, err := w.client.CoreV1().ReplicationControllers(place).Create(ctx, &corev1.ReplicationController{ObjectMeta: meta(scaled), Spec: corev1.ReplicationControllerSpec{
		Replicas: ptr.To(w.replicas()), Selector: selects(scaled).MatchLabels, Template: ptr.To(template(scaled, 0)),
	}}, create); err != nil {
		return err
	}
	if _, err := w.client.ResourceV1().ResourceClaimTemplates(place).Create(ctx, &resourcev1.ResourceClaimTemplate{ObjectMeta: meta(devices), Spec: resourcev1.ResourceClaimTemplateSpec{
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "one", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "absent"}}}}},
	}}, create); err != nil {
		return err
	}
	_, err := w.client.AutoscalingV2().HorizontalPodAutoscalers(place).Create(ctx, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta(scaled), Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		MinReplicas: ptr.To(w.replicas()), MaxReplicas: w.replicas(),
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "v1", Kind: "ReplicationController", Name: scaled},
	}}, create)
	return err
}

// subsets are the endpoints of the mirrored service in a round.
func (w *work) subsets() []corev1.EndpointSubset {
	return []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: w.address()}}, Ports: []corev1.EndpointPort{{Port: 80}}}}
}

func (w *work) address() string { return fmt.Sprintf("192.0.2.%d", 1+w.round%250) }

// changeFurther changes it for the next round.
func (w *work) changeFurther(ctx context.Context) error {
	var create metav1.CreateOptions
	name := fmt.Sprintf("takeover-%d", w.round)
	if _, err := w.client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: selects(aggregated).MatchLabels},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{name}, Verbs: []string{"get"}}},
	}, create); err != nil {
		return err
	}
	endpoints := &corev1.Endpoints{ObjectMeta: meta(mirrored), Subsets: w.subsets()}
	if _, err := w.client.CoreV1().Endpoints(place).Update(ctx, endpoints, metav1.UpdateOptions{}); err != nil {
		return err
	}
	limits := fmt.Appendf(nil, `{"spec":{"minReplicas":%d,"maxReplicas":%[1]d}}`, w.replicas())
	if _, err := w.client.AutoscalingV2().HorizontalPodAutoscalers(place).Patch(ctx, scaled, types.MergePatchType, limits, metav1.PatchOptions{}); err != nil {
		return err
	}
	ttl := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"7"}}}`, ttlAnnotation)
	if _, err := w.client.CoreV1().Nodes().Patch(ctx, taintedNode, types.MergePatchType, ttl, metav1.PatchOptions{}); err != nil {
		return err
	}
	evicted := &corev1.Pod{ObjectMeta: meta(name), Spec: template("evicted", w.round).Spec}
	evicted.Spec.NodeName = taintedNode
	if _, err := w.client.CoreV1().Pods(place).Create(ctx, evicted, create); err != nil {
		return err
	}
	if err := w.changeRanges(ctx); err != nil {
		return err
	}
	return w.changeVolumes(ctx)
}

// addresses is the name of a range of cluster IPs of a round, which is deleted in the next one.
func addresses(round int) string { return fmt.Sprintf("round-%d", round) }

func (w *work) changeRanges(ctx context.Context) error {
	ranges := w.client.NetworkingV1().ServiceCIDRs()
	if _, err := ranges.Create(ctx, &networkingv1.ServiceCIDR{ObjectMeta: meta(addresses(w.round)), Spec: networkingv1.ServiceCIDRSpec{
		CIDRs: []string{fmt.Sprintf("10.200.%d.0/24", w.round%250)},
	}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if w.round == 1 {
		return nil
	}
	return ranges.Delete(ctx, addresses(w.round-1), metav1.DeleteOptions{})
}

// changeVolumes creates a pod with an ephemeral volume, deletes that of the round before, and
// deletes a new volume, which its finalizer protects.
func (w *work) changeVolumes(ctx context.Context) error {
	var create metav1.CreateOptions
	amount := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	pod := &corev1.Pod{ObjectMeta: meta(scratch(w.round)), Spec: template("scratch", w.round).Spec}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Labels: selects("scratch").MatchLabels},
		Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: modes, StorageClassName: ptr.To("none"), Resources: corev1.VolumeResourceRequirements{Requests: amount}},
	}}}}}
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimTemplateName: ptr.To(devices)}}
	if _, err := w.client.CoreV1().Pods(place).Create(ctx, pod, create); err != nil {
		return err
	}
	if w.round > 1 {
		if err := w.client.CoreV1().Pods(place).Delete(ctx, scratch(w.round-1), metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	volume := &corev1.PersistentVolume{ObjectMeta: meta(fmt.Sprintf("spare-%d", w.round)), Spec: corev1.PersistentVolumeSpec{
		Capacity: amount, AccessModes: modes, StorageClassName: "spare", PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nonexistent"}},
	}}
	if _, err := w.client.CoreV1().PersistentVolumes().Create(ctx, volume, create); err != nil {
		return err
	}
	return w.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{})
}

// changedFurther checks what these controllers have done.
func (w *work) changedFurther(ctx context.Context) error {
	all, err := w.client.RbacV1().ClusterRoles().Get(ctx, aggregated, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if len(all.Rules) != w.round {
		return fmt.Errorf("the aggregated role has %d rules, want %d", len(all.Rules), w.round)
	}
	if err := w.mirrors(ctx); err != nil {
		return err
	}
	rc, err := w.client.CoreV1().ReplicationControllers(place).Get(ctx, scaled, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if made, want := w.seen.count("Pod", scaled), 1+(w.round+1)/2; rc.Status.ReadyReplicas != w.replicas() || rc.Status.Replicas != w.replicas() || made != want {
		return fmt.Errorf("the scaled replication controller has had %d pods, want %d: %+v", made, want, rc.Status)
	}
	node, err := w.client.CoreV1().Nodes().Get(ctx, taintedNode, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if ttl := node.Annotations[ttlAnnotation]; ttl != "0" {
		return fmt.Errorf("the node has the annotation %s=%q", ttlAnnotation, ttl)
	}
	if w.round == 0 {
		return nil
	}
	return w.protects(ctx)
}

// protects checks the claims of the scratch pods, and what was deleted or evicted.
func (w *work) protects(ctx context.Context) error {
	claims := w.client.CoreV1().PersistentVolumeClaims(place)
	if _, err := claims.Get(ctx, scratch(w.round)+"-data", metav1.GetOptions{}); err != nil {
		return err
	}
	if made := w.seen.count("PersistentVolumeClaim", "scratch"); made != w.round {
		return fmt.Errorf("%d claims of ephemeral volumes were created, want %d", made, w.round)
	}
	if made := w.seen.count("ResourceClaim", scratch(w.round)); made != 1 {
		return fmt.Errorf("%d claims of devices were created for a pod, want one", made)
	}
	of, err := w.client.ResourceV1().ResourceClaims(place).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(of.Items) != 1 {
		return fmt.Errorf("there are %d claims of devices, want one", len(of.Items))
	}
	current, err := w.client.NetworkingV1().ServiceCIDRs().Get(ctx, addresses(w.round), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !apimeta.IsStatusConditionTrue(current.Status.Conditions, networkingv1.ServiceCIDRConditionReady) {
		return fmt.Errorf("the range of addresses is not ready: %+v", current.Status)
	}
	_, before := w.client.NetworkingV1().ServiceCIDRs().Get(ctx, addresses(w.round-1), metav1.GetOptions{})
	_, claim := claims.Get(ctx, scratch(w.round-1)+"-data", metav1.GetOptions{})
	_, evicted := w.client.CoreV1().Pods(place).Get(ctx, fmt.Sprintf("takeover-%d", w.round), metav1.GetOptions{})
	_, volume := w.client.CoreV1().PersistentVolumes().Get(ctx, fmt.Sprintf("spare-%d", w.round), metav1.GetOptions{})
	for what, err := range map[string]error{"claim of a deleted pod": claim, "pod of the tainted node": evicted, "deleted volume": volume, "deleted range of addresses": before} {
		if err == nil {
			return errors.New("the " + what + " is there")
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// mirrors checks that the address of the mirrored service is in its slices, once.
func (w *work) mirrors(ctx context.Context) error {
	list, err := w.client.DiscoveryV1().EndpointSlices(place).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + mirrored})
	if err != nil {
		return err
	}
	var addresses []string
	for _, s := range list.Items {
		for _, e := range s.Endpoints {
			addresses = append(addresses, e.Addresses...)
		}
	}
	if len(addresses) != 1 || addresses[0] != w.address() {
		return fmt.Errorf("the mirrored addresses are %v, want %s", addresses, w.address())
	}
	return nil
}
