package fleet

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
)

// namespace is the namespace of the fleet's pods.
const namespace = "fleet"

// replicas is the maximum number of pods of a deployment.
const replicas = 100

// Deploy creates n more pods, in deployments, each with a ConfigMap and the token
// that every pod of a cluster has.
func (f *Fleet) Deploy(ctx context.Context, n int) error {
	if err := persist(ctx, func() error {
		_, err := f.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	if err := persist(ctx, func() error {
		_, err := f.client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"level": "info"},
		}, metav1.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	for ; n > 0; n -= replicas {
		f.deployments++
		d := deployment(fmt.Sprintf("web-%d", f.deployments), min(n, replicas))
		if err := persist(ctx, func() error {
			_, err := f.client.AppsV1().Deployments(namespace).Create(ctx, d, metav1.CreateOptions{})
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// persist repeats a request until the server answers: on a machine on which
// hundreds of agents start, requests can time out. An object that exists already
// was created by an earlier attempt.
func persist(ctx context.Context, request func() error) error {
	return wait.PollUntilContextCancel(ctx, time.Second, true, func(context.Context) (bool, error) {
		switch err := request(); {
		case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), apierrors.IsTooManyRequests(err):
			return false, nil
		case apierrors.IsAlreadyExists(err):
			return true, nil
		default:
			return true, err
		}
	})
}

func deployment(name string, pods int) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(pods)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{
					Name: "web", Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
					EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}},
					VolumeMounts: []corev1.VolumeMount{
						{Name: "settings", MountPath: "/etc/web"}, {Name: "cache", MountPath: "/var/cache/web"},
					},
				}},
				Volumes: []corev1.Volume{
					{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
						LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
					}}},
					{Name: "cache", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				},
			}},
		},
	}
}

// Undeploy deletes the deployments, and their pods with them.
func (f *Fleet) Undeploy(ctx context.Context) error {
	return persist(ctx, func() error {
		return f.client.AppsV1().Deployments(namespace).DeleteCollection(ctx, metav1.DeleteOptions{
			PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
		}, metav1.ListOptions{})
	})
}

// Pods returns the number of the fleet's pods in the API.
func (f *Fleet) Pods() int { return f.count(func(*corev1.Pod) bool { return true }) }

// ReadyPods returns the number of these pods that are ready.
func (f *Fleet) ReadyPods() int {
	return f.count(func(p *corev1.Pod) bool {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady {
				return c.Status == corev1.ConditionTrue
			}
		}
		return false
	})
}

// RestartedPods returns the number of these pods with a restarted container.
func (f *Fleet) RestartedPods() int {
	return f.count(func(p *corev1.Pod) bool {
		for _, c := range p.Status.ContainerStatuses {
			if c.RestartCount > 0 {
				return true
			}
		}
		return false
	})
}

func (f *Fleet) count(what func(*corev1.Pod) bool) int {
	n := 0
	for _, obj := range f.pods.List() {
		if pod := obj.(*corev1.Pod); pod.Namespace == namespace && what(pod) {
			n++
		}
	}
	return n
}

// Goroutines returns the number of goroutines of all agents together, from their
// metrics through the API server.
func (f *Fleet) Goroutines(ctx context.Context) (int, error) {
	total := 0
	for _, a := range f.agents {
		metrics, err := f.client.CoreV1().RESTClient().Get().Resource("nodes").Name(a.Node).SubResource("proxy").Suffix("metrics").DoRaw(ctx)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", a.Node, err)
		}
		n, err := gauge(string(metrics), "go_goroutines")
		if err != nil {
			return 0, fmt.Errorf("%s: %w", a.Node, err)
		}
		total += n
	}
	return total, nil
}

// gauge reads a line "NAME VALUE" of metrics.
func gauge(metrics, name string) (int, error) {
	for line := range strings.Lines(metrics) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, fmt.Errorf("there is no metric %s", name)
}
