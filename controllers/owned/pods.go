// Package owned owns what a controller remembers about the pods of its owners: it
// reads them from a cache that has the controller's own writes.
package owned

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/controllers/adoption"
	"svc.dev/svc/controllers/expectations"
	"svc.dev/svc/controllers/index"
)

// Pods are those of the owners of one controller. The cache needs the index
// index.ByController of pods.
type Pods struct {
	Client client.Client
	Live   client.Reader

	writes  expectations.Writes
	unknown expectations.UnknownOutcomes
}

// List returns the pods that the owner controls, in any phase, after it has adopted
// and released some. It adopts no pod that mayAdopt rejects; nil accepts all. The
// cache owns the pods.
func (p *Pods) List(ctx context.Context, owner client.Object, selector labels.Selector, mayAdopt func(*corev1.Pod) bool) ([]*corev1.Pod, error) {
	key := client.ObjectKeyFromObject(owner)
	if err := p.writes.Await(ctx, p.Client, key, &corev1.Pod{}); err != nil {
		return nil, err
	}
	controlled, err := index.ControlledPods(ctx, p.Client, owner.GetNamespace(), string(owner.GetUID()))
	if err != nil {
		return nil, err
	}
	if controlled, err = p.unknown.Pods(ctx, p.Live, owner, selector, controlled); err != nil {
		return nil, err
	}
	orphans, err := index.ControlledPods(ctx, p.Client, owner.GetNamespace(), index.NoController)
	if err != nil {
		return nil, err
	}
	for _, pod := range orphans {
		if mayAdopt == nil || mayAdopt(pod) {
			controlled = append(controlled, pod)
		}
	}
	all, err := adoption.Sync(ctx, adoption.Adopter{Client: p.Client, Live: p.Live, Owner: owner, Selector: selector}, controlled)
	for _, pod := range all {
		if metav1.GetControllerOfNoCopy(pod) == nil { // adopted just now
			p.writes.Expect(key, pod)
		}
	}
	return all, err
}

// Wrote remembers what the next List must know of a write of a pod, and returns
// the error of that write.
func (p *Pods) Wrote(owner client.Object, pod *corev1.Pod, err error) error {
	key := client.ObjectKeyFromObject(owner)
	if err == nil {
		p.writes.Expect(key, pod)
	}
	p.unknown.Record(key, err)
	return err
}

// Forget drops what is remembered of an owner that was deleted.
func (p *Pods) Forget(owner types.NamespacedName) {
	p.writes.Forget(owner)
	p.unknown.Forget(owner)
}
