package takeover

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/test/launch"
	"svc.dev/svc/test/simulate"
)

const (
	place       = "work"
	webReplicas = 4
	dbReplicas  = 3
	completions = 6
	// oldReplicas is the number of pods of the replication controller, which has one more
	// in every other round.
	oldReplicas = 2
	// volumeClass is that of the volumes of the stateful set.
	volumeClass = "takeover"
)

// work is the workloads: a deployment with a service and a disruption budget, a stateful
// set with claims, a daemon set, a cron job, a replication controller, and in each round a
// job, one that is deleted once it has finished, a namespace that stays, one and an owner
// that are deleted, and objects that count in a quota.
type work struct {
	client kubernetes.Interface
	node   kubernetes.Interface // the requester of certificates
	seen   *record
	round  int
}

// inAll calls functions until one fails.
func inAll(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// template is the template of a workload's pods in a round.
func template(app string, round int) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}, Annotations: map[string]string{"round": fmt.Sprint(round)}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To(int64(1)),
			Containers:                    []corev1.Container{{Name: "main", Image: "registry.example.com/main:1", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}},
		},
	}
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

func selects(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

// begin creates the workloads, and begins to record.
func (w *work) begin(ctx context.Context) error {
	var create metav1.CreateOptions
	if _, err := w.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: meta(place)}, create); err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(w.client, 0, informers.WithNamespace(place))
	if err := w.seen.watch(factory); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	amount := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	for i := range dbReplicas {
		if _, err := w.client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{ObjectMeta: meta(fmt.Sprintf("volume-%d", i)), Spec: corev1.PersistentVolumeSpec{
			Capacity: amount, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: volumeClass,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nonexistent"}},
		}}, create); err != nil {
			return err
		}
	}
	if _, err := w.client.AppsV1().Deployments(place).Create(ctx, &appsv1.Deployment{ObjectMeta: meta("web"), Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To(int32(webReplicas)), Selector: selects("web"), Template: template("web", 0), RevisionHistoryLimit: ptr.To(int32(100)),
		Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0)),
		}},
	}}, create); err != nil {
		return err
	}
	if _, err := w.client.AppsV1().StatefulSets(place).Create(ctx, &appsv1.StatefulSet{ObjectMeta: meta("db"), Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To(int32(dbReplicas)), Selector: selects("db"), Template: template("db", 0), ServiceName: "db", RevisionHistoryLimit: ptr.To(int32(100)),
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: meta("data"), Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To(volumeClass), Resources: corev1.VolumeResourceRequirements{Requests: amount},
		}}},
	}}, create); err != nil {
		return err
	}
	if _, err := w.client.AppsV1().DaemonSets(place).Create(ctx, &appsv1.DaemonSet{ObjectMeta: meta("agent"), Spec: appsv1.DaemonSetSpec{
		Selector: selects("agent"), Template: template("agent", 0), RevisionHistoryLimit: ptr.To(int32(100)),
	}}, create); err != nil {
		return err
	}
	if _, err := w.client.CoreV1().Services(place).Create(ctx, &corev1.Service{ObjectMeta: meta("web"), Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}},
	}}, create); err != nil {
		return err
	}
	if _, err := w.client.PolicyV1().PodDisruptionBudgets(place).Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: meta("web"), Spec: policyv1.PodDisruptionBudgetSpec{
		Selector: selects("web"), MaxUnavailable: ptr.To(intstr.FromInt32(1)),
	}}, create); err != nil {
		return err
	}
	// Objects that are created before a new quota has a status are counted five minutes later.
	if err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, launch.Patience, true, func(ctx context.Context) (bool, error) {
		_, err := w.client.CoreV1().ConfigMaps(place).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err == nil, client.IgnoreNotFound(err)
	}); err != nil {
		return err
	}
	if _, err := w.client.CoreV1().ResourceQuotas(place).Create(ctx, &corev1.ResourceQuota{ObjectMeta: meta("objects"), Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{"count/configmaps": resource.MustParse("1000")},
	}}, create); err != nil {
		return err
	}
	if _, err := w.client.CoreV1().ReplicationControllers(place).Create(ctx, &corev1.ReplicationController{ObjectMeta: meta("old"), Spec: corev1.ReplicationControllerSpec{
		Replicas: ptr.To(int32(oldReplicas)), Selector: selects("old").MatchLabels, Template: ptr.To(template("old", 0)),
	}}, create); err != nil {
		return err
	}
	if err := inAll(ctx, w.beginFurther, w.beginVolumes, w.beginNodes, w.beginTokens, w.beginCertificates); err != nil {
		return err
	}
	_, err := w.client.BatchV1().CronJobs(place).Create(ctx, &batchv1.CronJob{ObjectMeta: meta("tick"), Spec: batchv1.CronJobSpec{
		Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: ending("tick")}},
	}}, create)
	return err
}

// ending is a template of pods that end at once.
func ending(app string) corev1.PodTemplateSpec {
	t := template(app, 0)
	t.Annotations[simulate.ExitAnnotation] = "0"
	t.Spec.RestartPolicy = corev1.RestartPolicyNever
	return t
}

// change begins the next round, and returns before any of it is complete.
func (w *work) change(ctx context.Context) error {
	w.round++
	var create metav1.CreateOptions
	name := fmt.Sprintf("round-%d", w.round)
	for _, doomed := range []string{place, name} {
		if doomed == name {
			if _, err := w.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: meta(name)}, create); err != nil {
				return err
			}
		}
		owner, err := w.client.CoreV1().ConfigMaps(doomed).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta(name)}, create)
		if err != nil {
			return err
		}
		for i := range 5 {
			dependent := &corev1.ConfigMap{ObjectMeta: meta(fmt.Sprintf("%s-%d", name, i))}
			dependent.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: owner.UID}}
			dependent.Labels = map[string]string{"of": name}
			if _, err := w.client.CoreV1().ConfigMaps(doomed).Create(ctx, dependent, create); err != nil {
				return err
			}
		}
	}
	if _, err := w.client.BatchV1().Jobs(place).Create(ctx, &batchv1.Job{ObjectMeta: meta(name), Spec: batchv1.JobSpec{
		Completions: ptr.To(int32(completions)), Parallelism: ptr.To(int32(2)), Template: ending("job"),
	}}, create); err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"round":"%d"}}}}}`, w.round)
	apps := w.client.AppsV1()
	if _, err := apps.Deployments(place).Patch(ctx, "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	if _, err := apps.StatefulSets(place).Patch(ctx, "db", types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	if _, err := apps.DaemonSets(place).Patch(ctx, "agent", types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	if err := w.client.CoreV1().ConfigMaps(place).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}); err != nil {
		return err
	}
	if err := w.client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return inAll(ctx, w.changeMore, w.changeFurther, w.changeMoves, w.changeNodes, w.changePools, w.changeRanks, w.changeTokens, w.changeCertificates)
}

// changeMore changes what the smaller controllers work on.
func (w *work) changeMore(ctx context.Context) error {
	var create metav1.CreateOptions
	if _, err := w.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: meta(w.kept())}, create); err != nil {
		return err
	}
	// In a namespace whose account is there: without one, the secret would be deleted.
	token := &corev1.Secret{ObjectMeta: meta(w.kept()), Type: corev1.SecretTypeServiceAccountToken}
	token.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
	if _, err := w.client.CoreV1().Secrets(place).Create(ctx, token, create); err != nil {
		return err
	}
	if _, err := w.client.BatchV1().Jobs(place).Create(ctx, &batchv1.Job{ObjectMeta: meta(w.brief()), Spec: batchv1.JobSpec{
		TTLSecondsAfterFinished: ptr.To(int32(0)), Template: ending("job"),
	}}, create); err != nil {
		return err
	}
	_, err := w.client.CoreV1().ReplicationControllers(place).Patch(ctx, "old", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, w.oldReplicas()), metav1.PatchOptions{})
	return err
}

// kept is the namespace of the round that stays, and brief its job that is deleted once it
// has finished.
func (w *work) kept() string  { return fmt.Sprintf("kept-%d", w.round) }
func (w *work) brief() string { return fmt.Sprintf("brief-%d", w.round) }

func (w *work) oldReplicas() int { return oldReplicas + w.round%2 }

// changedMore checks what the smaller controllers have done.
func (w *work) changedMore(ctx context.Context) error {
	old, err := w.client.CoreV1().ReplicationControllers(place).Get(ctx, "old", metav1.GetOptions{})
	if err != nil {
		return err
	}
	made, want := w.seen.count("Pod", "old"), oldReplicas+(w.round+1)/2
	if old.Status.ObservedGeneration != old.Generation || int(old.Status.Replicas) != w.oldReplicas() || int(old.Status.ReadyReplicas) != w.oldReplicas() || made != want {
		return fmt.Errorf("the replication controller has had %d pods, want %d: %+v", made, want, old.Status)
	}
	if w.round == 0 {
		return nil
	}
	if _, err := w.client.CoreV1().ServiceAccounts(w.kept()).Get(ctx, "default", metav1.GetOptions{}); err != nil {
		return err
	}
	if _, err := w.client.CoreV1().ConfigMaps(w.kept()).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{}); err != nil {
		return err
	}
	secret, err := w.client.CoreV1().Secrets(place).Get(ctx, w.kept(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
		return fmt.Errorf("the secret %s has no token", secret.Name)
	}
	switch _, err := w.client.BatchV1().Jobs(place).Get(ctx, w.brief(), metav1.GetOptions{}); {
	case err == nil:
		return fmt.Errorf("the job %s is there", w.brief())
	case !apierrors.IsNotFound(err):
		return err
	}
	if got := w.seen.count("Pod", w.brief()); got != 1 {
		return fmt.Errorf("the job %s has had %d pods, want one", w.brief(), got)
	}
	return nil
}

// complete returns what is missing in the round, or what was done twice.
func (w *work) complete(ctx context.Context) error {
	if err := inAll(ctx, w.rolled, w.ran, w.serves, w.deleted, w.counted, w.changedMore, w.changedFurther, w.moved, w.ranged, w.collected, w.checked, w.answered, w.preempted, w.tokens, w.certificates); err != nil {
		return err
	}
	w.seen.mu.Lock()
	defer w.seen.mu.Unlock()
	w.seen.settled = true
	return nil
}

// rolled checks the rollouts: each template has one revision.
func (w *work) rolled(ctx context.Context) error {
	d, err := w.client.AppsV1().Deployments(place).Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !updated(d) {
		return fmt.Errorf("the deployment is not complete: %+v", d.Status)
	}
	s, err := w.client.AppsV1().StatefulSets(place).Get(ctx, "db", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if s.Status.ObservedGeneration != s.Generation || s.Status.ReadyReplicas != dbReplicas || s.Status.CurrentRevision != s.Status.UpdateRevision || s.Status.UpdatedReplicas != dbReplicas {
		return fmt.Errorf("the stateful set is not complete: %+v", s.Status)
	}
	a, err := w.client.AppsV1().DaemonSets(place).Get(ctx, "agent", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if a.Status.ObservedGeneration != a.Generation || a.Status.UpdatedNumberScheduled != machines || a.Status.NumberAvailable != machines {
		return fmt.Errorf("the daemon set is not complete: %+v", a.Status)
	}
	for _, once := range []struct {
		kind, owner string
		want        int
	}{
		{"ReplicaSet", "web", w.round + 1}, {"ControllerRevision", "db", w.round + 1}, {"ControllerRevision", "agent", w.round + 1},
		{"PersistentVolumeClaim", "db", dbReplicas}, {"Pod", "db", dbReplicas * (w.round + 1)}, {"Pod", "agent", machines * (w.round + 1)},
	} {
		if got := w.seen.count(once.kind, once.owner); got != once.want {
			return fmt.Errorf("%d objects of kind %s were created for %s, want %d", got, once.kind, once.owner, once.want)
		}
	}
	return nil
}

// ran checks the job of the round, and that the cron job has missed no minute.
func (w *work) ran(ctx context.Context) error {
	if w.round > 0 {
		name := fmt.Sprintf("round-%d", w.round)
		j, err := w.client.BatchV1().Jobs(place).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := w.seen.count("Pod", name); j.Status.Succeeded != completions || j.Status.CompletionTime == nil || got != completions {
			return fmt.Errorf("the job has %d pods of %d: %+v", got, completions, j.Status)
		}
	}
	w.seen.mu.Lock()
	defer w.seen.mu.Unlock()
	var minutes []time.Time
	for at := range w.seen.ticks {
		minute, err := time.Parse(time.RFC3339, at)
		if err != nil {
			return err
		}
		minutes = append(minutes, minute)
	}
	slices.SortFunc(minutes, time.Time.Compare)
	for i := 1; i < len(minutes); i++ {
		if minutes[i].Sub(minutes[i-1]) != time.Minute {
			w.seen.violations[fmt.Sprintf("the cron job did not run between %s and %s", minutes[i-1], minutes[i])] = 1
		}
	}
	return nil
}

// serves checks that the endpoints are the ready pods, each once.
func (w *work) serves(ctx context.Context) error {
	pods, err := w.client.CoreV1().Pods(place).List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		return err
	}
	var want, got, legacy []string
	for _, p := range pods.Items {
		want = append(want, p.Status.PodIP)
	}
	slices.Sort(want)
	slicesOf, err := w.client.DiscoveryV1().EndpointSlices(place).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"})
	if err != nil {
		return err
	}
	for _, s := range slicesOf.Items {
		for _, e := range s.Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) {
				got = append(got, e.Addresses...)
			}
		}
	}
	slices.Sort(got)
	endpoints, err := w.client.CoreV1().Endpoints(place).Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, subset := range endpoints.Subsets {
		for _, a := range subset.Addresses {
			legacy = append(legacy, a.IP)
		}
	}
	slices.Sort(legacy)
	if !slices.Equal(want, got) || !slices.Equal(want, legacy) {
		return fmt.Errorf("the pods are %v, the endpoints in slices %v, and in Endpoints %v", want, got, legacy)
	}
	budget, err := w.client.PolicyV1().PodDisruptionBudgets(place).Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if budget.Status.CurrentHealthy != webReplicas || budget.Status.DisruptionsAllowed != 1 {
		return fmt.Errorf("the disruption budget is not up to date: %+v", budget.Status)
	}
	return nil
}

// deleted checks that what was deleted has gone, with what belongs to it.
func (w *work) deleted(ctx context.Context) error {
	if w.round == 0 {
		return nil
	}
	name := fmt.Sprintf("round-%d", w.round)
	switch _, err := w.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); {
	case err == nil:
		return fmt.Errorf("the namespace %s is there", name)
	case !apierrors.IsNotFound(err):
		return err
	}
	left, err := w.client.CoreV1().ConfigMaps(place).List(ctx, metav1.ListOptions{LabelSelector: "of=" + name})
	if err != nil {
		return err
	}
	if len(left.Items) > 0 {
		return fmt.Errorf("%d dependents of a deleted owner are left", len(left.Items))
	}
	return nil
}

// counted checks that the quota counts what is there.
func (w *work) counted(ctx context.Context) error {
	quota, err := w.client.CoreV1().ResourceQuotas(place).Get(ctx, "objects", metav1.GetOptions{})
	if err != nil {
		return err
	}
	there, err := w.client.CoreV1().ConfigMaps(place).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if used := quota.Status.Used["count/configmaps"]; used.Value() != int64(len(there.Items)) {
		return fmt.Errorf("the quota counts %s ConfigMaps, and there are %d", used.String(), len(there.Items))
	}
	return nil
}
