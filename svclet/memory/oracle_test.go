package memory

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/internal/oracle"
	"svc.dev/svc/svclet/topology"
)

var runs = flag.Int("runs", 1000, "number of random machines that are compared with the real kubelet's policy")

// question, step and answer are what the program of hack/tools/kubernetes/allocate reads and
// writes.
type question struct {
	Memory         []uint64
	ReservedMemory map[int]uint64
	Steps          []step
}

type step struct {
	Pod    string
	Memory int64
	Nodes  []int
	// choice chooses Nodes from the hints, or none. Nodes that are of no hint come from merging
	// them with those of other resources: svclet extends them, where kubelet refuses some.
	choice int
}

type answer struct {
	Hints        []string
	Nodes, Error string
}

// TestAllocatesLikeKubelet compares the memory and the hints of containers on random machines,
// whose NUMA nodes have different amounts, with those of the real kubelet's static policy. It
// needs the program: `make test-peers-allocation` builds it.
func TestAllocatesLikeKubelet(t *testing.T) {
	kubelet := oracle.Start(t, "hack/tools/kubernetes/allocate")
	failed := 0
	for seed := range uint64(*runs) {
		q := randomQuestion(rand.New(rand.NewPCG(seed, 1)))
		all := playQuestion(t, q)
		var theirs []answer
		kubelet.Ask(t, q, &theirs)
		for i, ours := range all {
			if theirs[i].Error != "" {
				theirs[i].Error = "error" // its text may differ
			}
			if fmt.Sprint(ours) != fmt.Sprint(theirs[i]) {
				t.Errorf("seed %d: %v, reserved %v, step %d of %v: %+v, kubelet's %+v", seed, q.Memory, q.ReservedMemory, i, q.Steps, ours, theirs[i])
				failed++
				break
			}
		}
		if failed == 10 {
			t.Fatal("too many differences")
		}
	}
}

// randomQuestion returns a machine of one to four NUMA nodes, and steps with pods that come
// and go. Amounts are gibibytes.
func randomQuestion(r *rand.Rand) *question {
	q := &question{ReservedMemory: map[int]uint64{0: 1 << 30}}
	total := 0
	for range 1 + r.IntN(4) {
		amount := 2 + r.IntN(6)
		q.Memory, total = append(q.Memory, uint64(amount)<<30), total+amount
	}
	if r.IntN(2) == 0 {
		q.ReservedMemory[len(q.Memory)-1] = 1 << 30
	}
	var held []string
	for i := range 12 {
		if len(held) > 0 && r.IntN(3) == 0 {
			at := r.IntN(len(held))
			q.Steps = append(q.Steps, step{Pod: held[at]})
			held = slices.Delete(held, at, at+1)
			continue
		}
		s := step{Pod: fmt.Sprint("p", i), Memory: int64(1+r.IntN(max(total*2/3, 1))) << 30}
		s.choice = r.IntN(8)
		held = append(held, s.Pod)
		q.Steps = append(q.Steps, s)
	}
	return q
}

// playQuestion plays a question with svclet's policy, and sets the nodes of its steps.
func playQuestion(t *testing.T, q *question) []answer {
	t.Helper()
	machine, reserved, total := &topology.Topology{Memory: map[int]topology.Memory{}}, map[int]Amounts{}, int64(0)
	for node, bytes := range q.Memory {
		machine.Memory[node] = topology.Memory{Total: int64(bytes), HugePages: map[int64]int64{}}
		if kept := int64(q.ReservedMemory[node]); kept > 0 {
			reserved[node] = Amounts{corev1.ResourceMemory: kept}
			total += kept
		}
	}
	static, err := NewStatic(machine, reserved, total)
	if err != nil {
		t.Fatal(err)
	}
	p := &player{t: t}
	list := func(m topology.Mask) string {
		return strings.Trim(strings.ReplaceAll(fmt.Sprint(m.Nodes()), " ", ","), "[]")
	}
	var all []answer
	for i := range q.Steps {
		s := &q.Steps[i]
		var a answer
		if s.Memory == 0 {
			static.Release(types.UID(s.Pod))
			all = append(all, a)
			continue
		}
		pod := p.pod(s.Pod, []string{fmt.Sprintf("c=%d", s.Memory)})
		hints := static.Hints(pod, &pod.Spec.Containers[0])[string(corev1.ResourceMemory)]
		if s.choice < len(hints) {
			s.Nodes = hints[s.choice].Nodes.Nodes()
		}
		for _, h := range hints {
			text := list(h.Nodes)
			if h.Preferred {
				text += "*"
			}
			a.Hints = append(a.Hints, text)
		}
		if err := static.Allocate(pod, &pod.Spec.Containers[0], topology.NewMask(s.Nodes...)); err != nil {
			a.Error = "error"
		} else {
			a.Nodes = list(static.Nodes(pod.UID, "c"))
		}
		all = append(all, a)
	}
	return all
}
