package soak

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"svc.dev/svc/test/simulate"
)

// podTemplate is the template of pods with the label app.
func podTemplate(app string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To(int64(1)), Containers: []corev1.Container{{Name: "main", Image: "main:1"}}},
	}
}

func selecting(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

// newTemplate is a patch that rolls the pods of a workload.
func (u *user) newTemplate() []byte {
	return fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"main:%d"}]}}}}`, u.random.IntN(4))
}

func (u *user) createStatefulSet(ctx context.Context) error {
	name := u.some("db")
	policies := []appsv1.PodManagementPolicyType{appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement}
	_, err := u.client.AppsV1().StatefulSets(u.namespace).Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To(u.random.Int32N(4)), Selector: selecting(name), Template: podTemplate(name), ServiceName: "db",
			PodManagementPolicy: policies[u.random.IntN(len(policies))],
		},
	}, metav1.CreateOptions{})
	return err
}

func (u *user) updateStatefulSet(ctx context.Context) error {
	patch := u.newTemplate()
	if u.random.IntN(2) == 0 {
		patch = fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, u.random.IntN(4))
	}
	_, err := u.client.AppsV1().StatefulSets(u.namespace).Patch(ctx, u.some("db"), types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return err
}

func (u *user) deleteStatefulSet(ctx context.Context) error {
	return u.client.AppsV1().StatefulSets(u.namespace).Delete(ctx, u.some("db"), u.cascade())
}

func (u *user) createDaemonSet(ctx context.Context) error {
	_, err := u.client.AppsV1().DaemonSets(u.namespace).Create(ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec: appsv1.DaemonSetSpec{Selector: selecting("agent"), Template: podTemplate("agent"), UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
			Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(intstr.FromInt32(3))},
		}},
	}, metav1.CreateOptions{})
	return err
}

func (u *user) updateDaemonSet(ctx context.Context) error {
	_, err := u.client.AppsV1().DaemonSets(u.namespace).Patch(ctx, "agent", types.StrategicMergePatchType, u.newTemplate(), metav1.PatchOptions{})
	return err
}

func (u *user) deleteDaemonSet(ctx context.Context) error {
	return u.client.AppsV1().DaemonSets(u.namespace).Delete(ctx, "agent", u.cascade())
}

// createCronJob creates a cron job whose jobs end at once.
func (u *user) createCronJob(ctx context.Context) error {
	template := podTemplate("cron")
	template.Annotations = map[string]string{simulate.ExitAnnotation: "0"}
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	_, err := u.client.BatchV1().CronJobs(u.namespace).Create(ctx, &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: u.some("cron")},
		Spec: batchv1.CronJobSpec{
			Schedule: "* * * * *", SuccessfulJobsHistoryLimit: ptr.To(int32(1)),
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{BackoffLimit: ptr.To(int32(1000)), PodReplacementPolicy: ptr.To(batchv1.Failed), Template: template}},
		},
	}, metav1.CreateOptions{})
	return err
}

func (u *user) deleteCronJob(ctx context.Context) error {
	return u.client.BatchV1().CronJobs(u.namespace).Delete(ctx, u.some("cron"), u.cascade())
}

// createPolicies creates a service, a disruption budget and an autoscaler of a deployment,
// and a quota.
func (u *user) createPolicies(ctx context.Context) error {
	name := u.some("web")
	made := metav1.ObjectMeta{Name: name}
	if _, err := u.client.CoreV1().Services(u.namespace).Create(ctx, &corev1.Service{ObjectMeta: made, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80}},
	}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := u.client.PolicyV1().PodDisruptionBudgets(u.namespace).Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: made, Spec: policyv1.PodDisruptionBudgetSpec{
		Selector: selecting(name), MaxUnavailable: ptr.To(intstr.FromInt32(1)),
	}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := u.client.AutoscalingV2().HorizontalPodAutoscalers(u.namespace).Create(ctx, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: made, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		MaxReplicas: 8, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name},
	}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := u.client.CoreV1().ResourceQuotas(u.namespace).Create(ctx, &corev1.ResourceQuota{ObjectMeta: made, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1000")},
	}}, metav1.CreateOptions{})
	return err
}

func (u *user) deletePolicies(ctx context.Context) error {
	name := u.some("web")
	if err := u.client.CoreV1().Services(u.namespace).Delete(ctx, name, u.cascade()); err != nil {
		return err
	}
	if err := u.client.PolicyV1().PodDisruptionBudgets(u.namespace).Delete(ctx, name, u.cascade()); err != nil {
		return err
	}
	if err := u.client.CoreV1().ResourceQuotas(u.namespace).Delete(ctx, name, u.cascade()); err != nil {
		return err
	}
	return u.client.AutoscalingV2().HorizontalPodAutoscalers(u.namespace).Delete(ctx, name, u.cascade())
}

// createClaim creates a volume, unless it is there, and a claim of it.
func (u *user) createClaim(ctx context.Context) error {
	name := u.some("claim")
	volume := u.namespace + "-" + name
	amount := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	// It does not matter if an earlier claim has left it.
	_, _ = u.client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}, Spec: corev1.PersistentVolumeSpec{
		Capacity: amount, AccessModes: modes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nonexistent"}},
	}}, metav1.CreateOptions{})
	_, err := u.client.CoreV1().PersistentVolumeClaims(u.namespace).Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: modes, VolumeName: volume, StorageClassName: ptr.To(""), Resources: corev1.VolumeResourceRequirements{Requests: amount},
	}}, metav1.CreateOptions{})
	return err
}

// deleteClaim deletes a claim and its volume, in either order.
func (u *user) deleteClaim(ctx context.Context) error {
	name := u.some("claim")
	both := []func() error{
		func() error {
			return u.client.CoreV1().PersistentVolumeClaims(u.namespace).Delete(ctx, name, metav1.DeleteOptions{})
		},
		func() error {
			return u.client.CoreV1().PersistentVolumes().Delete(ctx, u.namespace+"-"+name, metav1.DeleteOptions{})
		},
	}
	first := u.random.IntN(2)
	if err := both[first](); err != nil {
		return err
	}
	return both[1-first]()
}

// createController creates a replication controller, or changes its replicas.
func (u *user) createController(ctx context.Context) error {
	name, replicas := u.some("old"), u.random.Int32N(4)
	controllers := u.client.CoreV1().ReplicationControllers(u.namespace)
	template := podTemplate(name)
	_, err := controllers.Create(ctx, &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ReplicationControllerSpec{
		Replicas: &replicas, Selector: template.Labels, Template: &template,
	}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = controllers.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
	}
	return err
}

func (u *user) deleteController(ctx context.Context) error {
	return u.client.CoreV1().ReplicationControllers(u.namespace).Delete(ctx, u.some("old"), u.cascade())
}

// createEphemeral creates a pod with an ephemeral volume, which stays pending: its claim is not
// bound.
func (u *user) createEphemeral(ctx context.Context) error {
	template := podTemplate("ephemeral")
	template.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("none"),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}}}}}
	_, err := u.client.CoreV1().Pods(u.namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: u.some("ephemeral"), Labels: template.Labels}, Spec: template.Spec,
	}, metav1.CreateOptions{})
	return err
}

// createEndpoints creates a service without a selector and its Endpoints, which are mirrored.
func (u *user) createEndpoints(ctx context.Context) error {
	made := metav1.ObjectMeta{Name: u.some("outside")}
	if _, err := u.client.CoreV1().Services(u.namespace).Create(ctx, &corev1.Service{ObjectMeta: made, Spec: corev1.ServiceSpec{
		Ports: []corev1.ServicePort{{Port: 80}},
	}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := u.client.CoreV1().Endpoints(u.namespace).Create(ctx, &corev1.Endpoints{ObjectMeta: made, Subsets: []corev1.EndpointSubset{{
		Addresses: []corev1.EndpointAddress{{IP: "192.0.2.1"}}, Ports: []corev1.EndpointPort{{Port: 80}},
	}}}, metav1.CreateOptions{})
	return err
}

func (u *user) deleteEndpoints(ctx context.Context) error {
	return u.client.CoreV1().Services(u.namespace).Delete(ctx, u.some("outside"), u.cascade())
}

// createToken creates the secret of a token, and deletes a service account that may have one.
func (u *user) createToken(ctx context.Context) error {
	account := u.some("account")
	made := metav1.ObjectMeta{Name: account}
	_, err := u.client.CoreV1().ServiceAccounts(u.namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: made}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return u.client.CoreV1().ServiceAccounts(u.namespace).Delete(ctx, account, metav1.DeleteOptions{})
	}
	if err != nil {
		return err
	}
	made.Annotations = map[string]string{corev1.ServiceAccountNameKey: account}
	_, err = u.client.CoreV1().Secrets(u.namespace).Create(ctx, &corev1.Secret{ObjectMeta: made, Type: corev1.SecretTypeServiceAccountToken}, metav1.CreateOptions{})
	return err
}

// unfinishedControllers returns the replication controllers that do not have their desired
// state.
func (s *cluster) unfinishedControllers(ctx context.Context) ([]string, error) {
	controllers, err := s.client.CoreV1().ReplicationControllers("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var unfinished []string
	for _, c := range controllers.Items {
		if st, want := c.Status, *c.Spec.Replicas; st.ObservedGeneration != c.Generation || st.Replicas != want || st.ReadyReplicas != want {
			unfinished = append(unfinished, fmt.Sprintf("replication controller %s/%s: %+v", c.Namespace, c.Name, st))
		}
	}
	return unfinished, nil
}

// unfinishedSets returns the stateful sets and daemon sets that do not have their desired
// state.
func (s *cluster) unfinishedSets(ctx context.Context) ([]string, error) {
	var unfinished []string
	statefulSets, err := s.client.AppsV1().StatefulSets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, set := range statefulSets.Items {
		if st, want := set.Status, *set.Spec.Replicas; st.ObservedGeneration != set.Generation || st.Replicas != want || st.ReadyReplicas != want || st.CurrentRevision != st.UpdateRevision {
			unfinished = append(unfinished, fmt.Sprintf("stateful set %s/%s: %+v", set.Namespace, set.Name, st))
		}
	}
	daemonSets, err := s.client.AppsV1().DaemonSets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, set := range daemonSets.Items {
		if st := set.Status; st.ObservedGeneration != set.Generation || st.DesiredNumberScheduled != machines || st.UpdatedNumberScheduled != machines || st.NumberAvailable != machines {
			unfinished = append(unfinished, fmt.Sprintf("daemon set %s/%s: %+v", set.Namespace, set.Name, st))
		}
	}
	return unfinished, nil
}
