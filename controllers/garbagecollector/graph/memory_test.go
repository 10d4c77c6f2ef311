package graph

import (
	"fmt"
	"runtime"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestMemory bounds the memory of an object, of which UID and name are 36 and some
// 20 bytes.
func TestMemory(t *testing.T) {
	const dependents = 50_000
	before := heap()
	g := New()
	g.Serve(kindA, true, true)
	g.Replace(kindA, []Object{{Namespace: "x", Name: "owner", UID: "owner", Version: 1}})
	for i := range dependents {
		g.Observe(kindA, Object{
			Namespace: "x", Name: fmt.Sprintf("some-deployment-%05d", i), UID: types.UID(fmt.Sprintf("%036d", i)), Version: uint64(i + 2),
			Owners: []metav1.OwnerReference{{APIVersion: "v1", Kind: "A", Name: "owner", UID: "owner"}},
		})
	}
	each := float64(heap()-before) / dependents
	t.Logf("%.0f bytes for each dependent", each)
	if each > 350 {
		t.Errorf("a dependent takes %.0f bytes", each)
	}
	g.Deleted("owner")
	if n := len(g.Ready()); n != dependents {
		t.Errorf("%d objects are to be collected, not %d", n, dependents)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkCollect(b *testing.B) {
	for b.Loop() {
		g := New()
		g.Serve(kindA, true, true)
		g.Replace(kindA, []Object{{Namespace: "x", Name: "owner", UID: "owner", Version: 1}})
		for i := range 10_000 {
			g.Observe(kindA, Object{
				Namespace: "x", Name: "d", UID: types.UID(fmt.Sprint(i)), Version: uint64(i + 2),
				Owners: []metav1.OwnerReference{{APIVersion: "v1", Kind: "A", Name: "owner", UID: "owner"}},
			})
		}
		g.Deleted("owner")
		for _, s := range g.Ready() {
			a := g.Next(s)
			g.Complete(s, a, Result{Outcome: Done})
			g.Deleted(s.UID)
		}
	}
}
