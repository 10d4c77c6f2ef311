package expectations

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

	"svc.dev/svc/controllers/pods"
)

// UnknownOutcomes are the owners that have a creation or deletion of a pod
// whose response was lost. The client cannot wait until the cache has such a
// write, because it does not know whether the API server has done it. Its zero
// value is ready to use.
type UnknownOutcomes struct {
	mu     sync.Mutex
	owners sets.Set[types.NamespacedName]
}

// Record takes the result of a creation or deletion of one of the owner's pods.
func (u *UnknownOutcomes) Record(owner types.NamespacedName, err error) {
	if !OutcomeUnknown(err) {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.owners == nil {
		u.owners = sets.New[types.NamespacedName]()
	}
	u.owners.Insert(owner)
}

// OutcomeUnknown reports whether the API server may have done what a request
// asked for though it failed with err.
func OutcomeUnknown(err error) bool {
	if err == nil {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // there was no response
	}
	return status.Status().Code >= http.StatusInternalServerError
}

// Pods returns the pods that the owner controls: cached, which are those in the
// cache, or those that live lists if the owner has an unknown outcome. It
// forgets the outcome when the cache and the API server have the same active
// pods that match the selector.
func (u *UnknownOutcomes) Pods(ctx context.Context, live client.Reader, owner client.Object, selector labels.Selector, cached []*corev1.Pod) ([]*corev1.Pod, error) {
	u.mu.Lock()
	unknown := u.owners.Has(client.ObjectKeyFromObject(owner))
	u.mu.Unlock()
	if !unknown {
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
	if activeUIDs(present).Equal(activeUIDs(matching)) {
		u.Forget(client.ObjectKeyFromObject(owner))
		return cached, nil
	}
	return present, nil
}

func activeUIDs(all []*corev1.Pod) sets.Set[types.UID] {
	uids := sets.New[types.UID]()
	for _, pod := range all {
		if pods.IsActive(pod) {
			uids.Insert(pod.UID)
		}
	}
	return uids
}

// Forget drops the owner's unknown outcomes, for example because the owner was
// deleted.
func (u *UnknownOutcomes) Forget(owner types.NamespacedName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.owners.Delete(owner)
}
