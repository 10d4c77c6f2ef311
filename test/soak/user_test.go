package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"svc.dev/svc/test/simulate"
)

// user executes random operations in a namespace, one after the other.
type user struct {
	*cluster
	random    *rand.Rand
	namespace string
	made      int
}

// pause is the mean time between two operations of a user.
const pause = 60 * time.Millisecond

// work works until ctx is done. A failed operation is not retried: the object may
// be gone or the server killed, and the next operation is another.
func (u *user) work(ctx context.Context) {
	operations := []struct {
		weight int
		do     func(context.Context) error
	}{
		{8, u.createDeployment},
		{12, u.scaleDeployment},
		{8, u.updateDeployment},
		{6, u.deleteDeployment},
		{6, u.createJob},
		{3, u.deleteJob},
		{6, u.createTree},
		{6, u.deleteTree},
		{12, u.deletePod},
		{4, u.createStatefulSet},
		{6, u.updateStatefulSet},
		{3, u.deleteStatefulSet},
		{2, u.createDaemonSet},
		{2, u.updateDaemonSet},
		{1, u.deleteDaemonSet},
		{2, u.createCronJob},
		{1, u.deleteCronJob},
		{4, u.createPolicies},
		{3, u.deletePolicies},
		{4, u.createClaim},
		{4, u.deleteClaim},
		{3, u.createController},
		{2, u.deleteController},
		{2, u.createEphemeral},
		{2, u.createEndpoints},
		{2, u.deleteEndpoints},
		{1, u.createToken},
		{1, u.deleteNamespace},
	}
	total := 0
	for _, o := range operations {
		total += o.weight
	}
	for ctx.Err() == nil {
		n := u.random.IntN(total)
		for _, o := range operations {
			if n -= o.weight; n < 0 {
				// It does not matter if the namespace exists already or is terminating.
				_, _ = u.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: u.namespace}}, metav1.CreateOptions{})
				if o.do(ctx) == nil {
					u.operations.Add(1)
				}
				break
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(u.random.Int64N(int64(2 * pause)))):
		}
	}
}

// some returns the name of one of a few objects of a kind.
func (u *user) some(kind string) string { return fmt.Sprintf("%s-%d", kind, u.random.IntN(5)) }

// cascade returns a random deletion propagation policy. Orphans are deleted with
// the namespace.
func (u *user) cascade() metav1.DeleteOptions {
	policies := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan}
	return metav1.DeleteOptions{PropagationPolicy: &policies[u.random.IntN(len(policies))]}
}

func (u *user) createDeployment(ctx context.Context) error {
	labels := map[string]string{"app": u.some("web")}
	_, err := u.client.AppsV1().Deployments(u.namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: labels["app"]},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(u.random.Int32N(6)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To(int64(1)), Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
			},
		},
	}, metav1.CreateOptions{})
	return err
}

func (u *user) scaleDeployment(ctx context.Context) error {
	return u.patchDeployment(ctx, fmt.Sprintf(`{"spec":{"replicas":%d}}`, u.random.IntN(8)))
}

func (u *user) updateDeployment(ctx context.Context) error {
	return u.patchDeployment(ctx, fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:%d"}]}}}}`, u.random.IntN(4)))
}

func (u *user) patchDeployment(ctx context.Context, patch string) error {
	_, err := u.client.AppsV1().Deployments(u.namespace).Patch(ctx, u.some("web"), types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func (u *user) deleteDeployment(ctx context.Context) error {
	return u.client.AppsV1().Deployments(u.namespace).Delete(ctx, u.some("web"), u.cascade())
}

func (u *user) createJob(ctx context.Context) error {
	_, err := u.client.BatchV1().Jobs(u.namespace).Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: u.some("job")},
		Spec: batchv1.JobSpec{
			Completions: ptr.To(1 + u.random.Int32N(5)), Parallelism: ptr.To(1 + u.random.Int32N(3)),
			// Pods that users delete are replaced, however many.
			BackoffLimit: ptr.To(int32(1000)), PodReplacementPolicy: ptr.To(batchv1.Failed),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{simulate.ExitAnnotation: "0"}},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: ptr.To(int64(1)),
					Containers: []corev1.Container{{Name: "job", Image: "job:1"}},
				},
			},
		},
	}, metav1.CreateOptions{})
	return err
}

func (u *user) deleteJob(ctx context.Context) error {
	return u.client.BatchV1().Jobs(u.namespace).Delete(ctx, u.some("job"), u.cascade())
}

// createTree creates a ConfigMap that owns others, which own others.
func (u *user) createTree(ctx context.Context) error {
	u.made++
	maps := u.client.CoreV1().ConfigMaps(u.namespace)
	root, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: u.some("tree")}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	owners := []*corev1.ConfigMap{root}
	for i := range 1 + u.random.IntN(8) {
		owner := owners[u.random.IntN(len(owners))]
		child, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%d-%d", root.Name, u.made, i),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: ptr.To(u.random.IntN(2) == 0),
			}},
		}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		owners = append(owners, child)
	}
	return nil
}

func (u *user) deleteTree(ctx context.Context) error {
	return u.client.CoreV1().ConfigMaps(u.namespace).Delete(ctx, u.some("tree"), u.cascade())
}

func (u *user) deletePod(ctx context.Context) error {
	pods, err := u.client.CoreV1().Pods(u.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app"})
	if err != nil || len(pods.Items) == 0 {
		return err
	}
	return u.client.CoreV1().Pods(u.namespace).Delete(ctx, pods.Items[u.random.IntN(len(pods.Items))].Name, metav1.DeleteOptions{})
}

func (u *user) deleteNamespace(ctx context.Context) error {
	return u.client.CoreV1().Namespaces().Delete(ctx, u.namespace, metav1.DeleteOptions{})
}
