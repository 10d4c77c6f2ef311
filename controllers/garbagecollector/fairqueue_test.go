package garbagecollector

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/controllers/garbagecollector/graph"
)

func TestNamespacesAreServedInTurn(t *testing.T) {
	q := &fairQueue{waiting: map[string][]graph.Subject{}}
	for _, s := range toCollect("a1", "a2", "a3", "b1", "b2", "c1") {
		q.Push(s)
	}
	var got []types.UID
	pop := func(n int) {
		for range n {
			got = append(got, q.Pop().UID)
		}
	}
	pop(4)
	for _, s := range toCollect("b3") {
		q.Push(s)
	}
	pop(q.Len())
	if want := []types.UID{"a1", "b1", "c1", "a2", "b2", "a3", "b3"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if len(q.waiting) != 0 || len(q.next) != 0 {
		t.Errorf("%d namespaces remain", len(q.waiting))
	}
}

// toCollect returns subjects whose namespaces are the first letters of their UIDs.
func toCollect(uids ...types.UID) []graph.Subject {
	g := graph.New()
	kind := schema.GroupKind{Kind: "A"}
	g.Serve(kind, true, true)
	g.Replace(kind, nil)
	for i, uid := range uids {
		namespace := string(uid[:1])
		owner := graph.Object{Namespace: namespace, Name: "owner", UID: types.UID(fmt.Sprintf("owner-%d", i)), Version: 1}
		g.Observe(kind, owner)
		g.Observe(kind, graph.Object{
			Namespace: namespace, Name: string(uid), UID: uid, Version: 1,
			Owners: []metav1.OwnerReference{{APIVersion: "v1", Kind: "A", Name: "owner", UID: owner.UID}},
		})
		g.Deleted(owner.UID)
	}
	return g.Ready()
}
