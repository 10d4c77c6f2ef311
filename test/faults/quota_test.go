package faults

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// TestTwoServersNeverExceedAQuota has 64 clients, half of them on each server, that
// create twice as many pods as the quota allows.
func TestTwoServersNeverExceedAQuota(t *testing.T) {
	const creators, each, limit = 64, 4, 128
	g := NewWithT(t)
	e := newEtcd(t)
	flag := "--disable-admission-plugins=ServiceAccount" // no controller makes accounts
	clients := []kubernetes.Interface{clientOf(t, apiserver(t, e, flag)), clientOf(t, apiserver(t, e, flag))}
	quotas := clients[0].CoreV1().ResourceQuotas("default")
	none := resource.MustParse("0")
	hard := corev1.ResourceList{corev1.ResourcePods: resource.MustParse(fmt.Sprint(limit)), corev1.ResourceServices: none}
	q, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "few"}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	// The controller would do this.
	q.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{corev1.ResourcePods: none, corev1.ResourceServices: none}}
	_, err = quotas.UpdateStatus(t.Context(), q, metav1.UpdateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	for _, client := range clients {
		// A server that has not seen the quota's status charges nothing.
		g.Eventually(func() error {
			_, err := client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: "any"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
			}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}).Should(MatchError(ContainSubstring("exceeded quota: few")))
	}

	var created, refused atomic.Int32
	var wg sync.WaitGroup
	for i := range creators {
		wg.Go(func() {
			for n := range each {
				switch err := create(t.Context(), clients[i%2], fmt.Sprintf("p%d-%d", i, n)); {
				case err == nil:
					created.Add(1)
				case apierrors.IsForbidden(err):
					refused.Add(1)
				default:
					t.Errorf("pod %d of creator %d: %v", n, i, err)
				}
			}
		})
	}
	wg.Wait()
	g.Expect(created.Load()).To(BeEquivalentTo(limit))
	g.Expect(refused.Load()).To(BeEquivalentTo(creators*each - limit))
	pods, err := clients[1].CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pods.Items).To(HaveLen(limit))
	q, err = quotas.Get(t.Context(), "few", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	used := q.Status.Used[corev1.ResourcePods]
	g.Expect(used.Value()).To(BeEquivalentTo(limit))
}

// create creates a pod, again if the servers' updates of the quota collide.
func create(ctx context.Context, client kubernetes.Interface, name string) error {
	for {
		_, err := client.CoreV1().Pods("default").Create(ctx, podNamed(name), metav1.CreateOptions{})
		if !apierrors.IsConflict(err) {
			return err
		}
	}
}

func podNamed(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "image"}}},
	}
}
