package subsets

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestPack compares subsets with what they are made of, at random.
func TestPack(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 2000 {
		want := map[string]bool{} // address and port, whether all say that it is ready
		var all []Address
		for range random.IntN(12) {
			a := Address{
				EndpointAddress: corev1.EndpointAddress{IP: fmt.Sprint("10.0.0.", random.IntN(4))},
				Ready:           random.IntN(3) > 0,
				Port:            &corev1.EndpointPort{Port: int32(80 + random.IntN(3))},
			}
			if uid := random.IntN(3); uid > 0 {
				a.TargetRef = &corev1.ObjectReference{UID: types.UID(fmt.Sprint(uid))}
			}
			if round%8 == 0 {
				a.Port = nil // of a headless service
			}
			all = append(all, a)
			ready, known := want[pairKey(a)]
			want[pairKey(a)] = a.Ready && (ready || !known)
		}
		packed := Pack(all)
		got := map[string]bool{}
		for _, a := range Unpack(packed) {
			if _, twice := got[pairKey(a)]; twice {
				t.Fatalf("round %d: %s is there twice", round, pairKey(a))
			}
			got[pairKey(a)] = a.Ready
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("round %d: %s", round, diff)
		}
		contents := map[string]bool{}
		for _, s := range packed {
			s.Ports = nil
			content := ""
			for _, a := range Unpack([]corev1.EndpointSubset{s}) {
				content += fmt.Sprintf("%s %t,", pairKey(a), a.Ready)
			}
			if contents[content] {
				t.Fatalf("round %d: two subsets have the same addresses: %s", round, content)
			}
			contents[content] = true
		}
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if diff := cmp.Diff(packed, Pack(all)); diff != "" {
			t.Fatalf("round %d: the order matters:\n%s", round, diff)
		}
	}
}

func pairKey(a Address) string { return addressKey(a.EndpointAddress) + " " + portKey(a.Port) }
