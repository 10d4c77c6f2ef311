package cpus

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"svc.dev/svc/internal/oracle"
	"svc.dev/svc/svclet/topology"
	"svc.dev/svc/svclet/topology/topologytest"
)

var runs = flag.Int("runs", 1000, "number of random machines that are compared with the real kubelet's policy")

// question, step and answer are what the program of hack/tools/kubernetes/allocate reads and
// writes.
type question struct {
	CPUs     []cpu
	Options  map[string]string
	Reserved string
	Steps    []step
}

type cpu struct{ ID, Core, Socket, Node int }

type step struct {
	Pod   string
	CPUs  int
	Nodes []int
}

type answer struct {
	Hints       []string
	CPUs, Error string
}

// TestAllocatesLikeKubelet compares the CPUs and the hints of containers on random machines
// with those of the real kubelet's static policy. It needs the program: `make
// test-peers-allocation` builds it.
func TestAllocatesLikeKubelet(t *testing.T) {
	kubelet := oracle.Start(t, "hack/tools/kubernetes/allocate")
	failed := 0
	for seed := range uint64(*runs) {
		r := rand.New(rand.NewPCG(seed, 1))
		q, machine, options := randomQuestion(r)
		var theirs []answer
		kubelet.Ask(t, q, &theirs)
		ours := play(t, q, machine, options)
		for i := range ours {
			theirs[i].Error = failure(theirs[i].Error)
			if fmt.Sprint(ours[i]) != fmt.Sprint(theirs[i]) {
				t.Errorf("seed %d: machine %v, options %v, reserved %s, step %d of %v: %+v, kubelet's %+v", seed, len(q.CPUs), q.Options, q.Reserved, i, q.Steps, ours[i], theirs[i])
				failed++
				break
			}
		}
		if failed == 10 {
			t.Fatal("too many differences")
		}
	}
}

// failure replaces an error, whose text may differ.
func failure(text string) string {
	if text != "" {
		return "error"
	}
	return ""
}

// randomQuestion returns a machine, the options of the policy, and steps with pods that come
// and go.
func randomQuestion(r *rand.Rand) (*question, *topology.Topology, Options) {
	machine := topologytest.Regular(1+r.IntN(2), 1+r.IntN(2), 1+r.IntN(5), 1+r.IntN(2), 1<<30)
	q := &question{Options: map[string]string{}}
	for _, id := range machine.All().List() {
		c := machine.CPUs[id]
		q.CPUs = append(q.CPUs, cpu{id, c.Core, c.Socket, c.Node})
	}
	var o Options
	if o.FullCores = r.IntN(3) == 0; o.FullCores {
		q.Options[fullCores] = "true"
	}
	switch r.IntN(4) {
	case 0:
		o.Distribute = true
		q.Options[distributed] = "true"
	case 1:
		o.AlignBySocket = true
		q.Options[alignBySocket] = "true"
	}
	q.Reserved = cpuset.New(machine.All().List()[:1+r.IntN(2)%len(machine.CPUs)]...).String()
	var held []string
	for i := range 12 {
		if len(held) > 0 && r.IntN(3) == 0 {
			at := r.IntN(len(held))
			q.Steps = append(q.Steps, step{Pod: held[at]})
			held = slices.Delete(held, at, at+1)
			continue
		}
		s := step{Pod: fmt.Sprint("p", i), CPUs: 1 + r.IntN(max(len(machine.CPUs)/2, 1))}
		for _, node := range machine.Nodes() {
			if r.IntN(2) == 0 {
				s.Nodes = append(s.Nodes, node)
			}
		}
		held = append(held, s.Pod)
		q.Steps = append(q.Steps, s)
	}
	return q, machine, o
}

// play plays a question with svclet's policy.
func play(t *testing.T, q *question, machine *topology.Topology, o Options) []answer {
	t.Helper()
	reserved, err := cpuset.Parse(q.Reserved)
	if err != nil {
		t.Fatal(err)
	}
	static, err := NewStatic(machine, o, reserved, reserved.Size())
	if err != nil {
		t.Fatal(err)
	}
	p := &player{t: t}
	var all []answer
	for _, s := range q.Steps {
		var a answer
		if s.CPUs == 0 {
			static.Release(types.UID(s.Pod))
			all = append(all, a)
			continue
		}
		pod := p.pod(s.Pod, []string{fmt.Sprintf("c=%d", s.CPUs)})
		for _, h := range static.Hints(pod, &pod.Spec.Containers[0]) {
			text := strings.Trim(strings.ReplaceAll(fmt.Sprint(h.Nodes.Nodes()), " ", ","), "[]")
			if h.Preferred {
				text += "*"
			}
			a.Hints = append(a.Hints, text)
		}
		if err := static.Allocate(pod, &pod.Spec.Containers[0], topology.NewMask(s.Nodes...)); err != nil {
			a.Error = failure(err.Error())
		} else if cpus, exclusive := static.CPUs(pod.UID, "c"); exclusive {
			a.CPUs = cpus.String()
		}
		all = append(all, a)
	}
	return all
}
