package expectations

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

func TestOutcomeIsUnknownWithoutAResponseOrAfterAServerError(t *testing.T) {
	resource := schema.GroupResource{Resource: "pods"}
	for _, tt := range []struct {
		rule string
		err  error
		want bool
	}{
		{"success", nil, false},
		{"no response", errors.New("connection reset by peer"), true},
		{"timeout of the request", context.DeadlineExceeded, true},
		{"etcd has timed out", apierrors.NewTimeoutError("etcd", 0), true},
		{"internal error", fmt.Errorf("create: %w", apierrors.NewInternalError(errors.New("x"))), true},
		{"forbidden", apierrors.NewForbidden(resource, "a", errors.New("quota")), false},
		{"invalid", apierrors.NewBadRequest("x"), false},
		{"too many requests", apierrors.NewTooManyRequests("x", 1), false},
	} {
		if got := OutcomeUnknown(tt.err); got != tt.want {
			t.Errorf("%s: %v", tt.rule, got)
		}
	}
}

func terminating(pod corev1.Pod) *corev1.Pod {
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

func TestPodsAreListedFromTheServerWhileAnOutcomeIsUnknown(t *testing.T) {
	owner := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", UID: "owner"}}
	key := client.ObjectKeyFromObject(owner)
	owned := func(uid types.UID) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, OwnerReferences: []metav1.OwnerReference{{UID: "owner", Controller: ptr.To(true)}}}}
	}
	one, two := owned("1"), owned("2")
	s := &server{pods: []corev1.Pod{one, two, {ObjectMeta: metav1.ObjectMeta{UID: "orphan"}}}}
	var u UnknownOutcomes
	pods := func(cached ...*corev1.Pod) string {
		found, err := u.Pods(t.Context(), s, owner, labels.Everything(), cached)
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
	check("no unknown outcome, no list", pods(&one), "1 after 0 lists")
	u.Record(key, errors.New("connection reset"))
	check("the pod was created though the response was lost", pods(&one), "12 after 1 lists")
	check("the cache does not have the pod yet", pods(&one), "12 after 2 lists")
	check("the cache has the pod", pods(&one, &two), "12 after 3 lists")
	check("the outcome is known", pods(&one), "1 after 3 lists")

	u.Record(key, errors.New("connection reset"))
	u.Forget(key)
	check("another owner of the same name", pods(), " after 3 lists")

	u.Record(key, errors.New("connection reset"))
	s.pods = s.pods[:1]
	check("a pod was deleted though the response was lost", pods(&one, &two), "1 after 4 lists")
	check("the cache has it as terminating", pods(&one, terminating(two)), "12 after 5 lists")
	check("the outcome is known again", pods(&one), "1 after 5 lists")
}
