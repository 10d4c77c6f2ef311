package pods

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Doubts remembers the owners for whose pods the cache may be behind: those for
// which the answer to a creation or a deletion got lost. The client waits for
// what it knows to have done, but cannot for these. As long as there is a doubt,
// the API server's list counts instead of the cache's.
type Doubts struct {
	mu     sync.Mutex
	owners sets.Set[types.NamespacedName]
}

// After takes the error of a creation or a deletion for an owner.
func (d *Doubts) After(owner types.NamespacedName, err error) {
	if !Unclear(err) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.owners == nil {
		d.owners = sets.New[types.NamespacedName]()
	}
	d.owners.Insert(owner)
}

// Unclear tells whether a request that failed may have done its work.
func Unclear(err error) bool {
	if err == nil {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // there was no answer
	}
	return status.Status().Code >= http.StatusInternalServerError
}

// Resolve returns the pods of an owner: cached, those that the cache has, or
// those that the API server has if there is a doubt. The doubt ends when the
// same ones that the selector matches are active in both.
func (d *Doubts) Resolve(ctx context.Context, live client.Reader, owner client.Object, selector labels.Selector, cached []*corev1.Pod) ([]*corev1.Pod, error) {
	d.mu.Lock()
	doubt := d.owners.Has(client.ObjectKeyFromObject(owner))
	d.mu.Unlock()
	if !doubt {
		return cached, nil
	}
	var list corev1.PodList
	if err := live.List(ctx, &list, client.InNamespace(owner.GetNamespace()), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, err
	}
	var present []*corev1.Pod
	for i := range list.Items {
		if ref := metav1.GetControllerOfNoCopy(&list.Items[i]); ref != nil && ref.UID == owner.GetUID() {
			present = append(present, &list.Items[i])
		}
	}
	matching := slices.DeleteFunc(slices.Clone(cached), func(pod *corev1.Pod) bool { return !selector.Matches(labels.Set(pod.Labels)) })
	if active(present).Equal(active(matching)) {
		d.Forget(client.ObjectKeyFromObject(owner))
		return cached, nil
	}
	return present, nil
}

func active(pods []*corev1.Pod) sets.Set[types.UID] {
	uids := sets.New[types.UID]()
	for _, pod := range pods {
		if IsActive(pod) {
			uids.Insert(pod.UID)
		}
	}
	return uids
}

// Forget ends the doubt about an owner's pods, as when the owner has gone.
func (d *Doubts) Forget(owner types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.owners.Delete(owner)
}
