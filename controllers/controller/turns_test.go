package controller

import (
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// lettered is a request whose namespace is its first letter.
type lettered string

func (l lettered) Namespace() string { return string(l[:1]) }

func TestNamespacesAreServedInTurn(t *testing.T) {
	order, err := orderOf[lettered](Options{NamespacesInTurn: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, request := range []lettered{"a1", "a2", "a3", "b1", "b2", "c1"} {
		order.Push(request)
	}
	var got []lettered
	pop := func(n int) {
		for range n {
			got = append(got, order.Pop())
		}
	}
	pop(4)
	order.Push("b3")
	pop(order.Len())
	if want := []lettered{"a1", "b1", "c1", "a2", "b2", "a3", "b3"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if q := order.(*namespacesInTurn[lettered]); len(q.waiting) != 0 || len(q.next) != 0 {
		t.Errorf("%d namespaces remain", len(q.waiting))
	}
}

func TestRequestsWithoutNamespaceCannotBeServedInTurn(t *testing.T) {
	if _, err := orderOf[reconcile.Request](Options{NamespacesInTurn: true}); err == nil {
		t.Error("the order is made")
	}
}
