package pods

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestWhichErrorsLeaveADoubt(t *testing.T) {
	resource := schema.GroupResource{Resource: "pods"}
	for _, tt := range []struct {
		rule string
		err  error
		want bool
	}{
		{"success", nil, false},
		{"no answer", errors.New("connection reset by peer"), true},
		{"timeout of the request", context.DeadlineExceeded, true},
		{"etcd has not answered in time", apierrors.NewTimeoutError("etcd", 0), true},
		{"internal error", fmt.Errorf("create: %w", apierrors.NewInternalError(errors.New("x"))), true},
		{"refused", apierrors.NewForbidden(resource, "a", errors.New("quota")), false},
		{"invalid", apierrors.NewBadRequest("x"), false},
		{"too many requests, not begun", apierrors.NewTooManyRequests("x", 1), false},
	} {
		if got := Unclear(tt.err); got != tt.want {
			t.Errorf("%s: %v", tt.rule, got)
		}
	}
}

func going(pod corev1.Pod) *corev1.Pod {
	pod.DeletionTimestamp = ptr.To(metav1.Now())
	return &pod
}

// server lists pods as the API server would.
type server struct {
	client.Reader
	pods  []corev1.Pod
	lists int
}

func (s *server) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	s.lists++
	list.(*corev1.PodList).Items = s.pods
	return nil
}

func TestTheServersPodsCountWhileThereIsADoubt(t *testing.T) {
	owner := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", UID: "owner"}}
	key := client.ObjectKeyFromObject(owner)
	owned := func(uid types.UID) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, OwnerReferences: []metav1.OwnerReference{{UID: "owner", Controller: ptr.To(true)}}}}
	}
	one, two := owned("1"), owned("2")
	s := &server{pods: []corev1.Pod{one, two, {ObjectMeta: metav1.ObjectMeta{UID: "orphan"}}}}
	var d Doubts
	resolve := func(cached ...*corev1.Pod) string {
		found, err := d.Resolve(t.Context(), s, owner, labels.Everything(), cached)
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, pod := range found {
			text += string(pod.UID)
		}
		return fmt.Sprint(text, " after ", s.lists, " lists")
	}
	check := func(rule, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %s, want %s", rule, got, want)
		}
	}
	check("no doubt, no list", resolve(&one), "1 after 0 lists")
	d.After(key, errors.New("connection reset"))
	check("the pod was created though the answer is lost", resolve(&one), "12 after 1 lists")
	check("the cache lacks it still", resolve(&one), "12 after 2 lists")
	check("the cache has it", resolve(&one, &two), "12 after 3 lists")
	check("that ends the doubt", resolve(&one), "1 after 3 lists")

	d.After(key, errors.New("connection reset"))
	d.Forget(key)
	check("a new owner of that name", resolve(), " after 3 lists")

	d.After(key, errors.New("connection reset"))
	s.pods = s.pods[:1]
	check("a pod was deleted though the answer is lost", resolve(&one, &two), "1 after 4 lists")
	check("the cache knows that it goes", resolve(&one, going(two)), "12 after 5 lists")
	check("that ends the doubt, too", resolve(&one), "1 after 5 lists")
}
