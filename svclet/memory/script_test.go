package memory

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/internal/golden"
	"svc.dev/svc/svclet/topology"
	"svc.dev/svc/svclet/topology/topologytest"
)

// TestScripts plays the golden scripts in testdata.
//
//	machine NODE... [reserve=NODE:AMOUNT...] [total=AMOUNT]
//	          the memory of each NUMA node, as 4Gi or 4Gi/1Gi with huge pages of 2Mi; total
//	          is what the node keeps from pods, by default all that is reserved
//	pod NAME CONTAINER=AMOUNT...  a guaranteed pod: init:NAME=AMOUNT, sidecar:NAME=AMOUNT;
//	          an amount is of memory, as 1Gi, or of both, as 1Gi/2Mi
//	hints POD CONTAINER, podhints POD
//	allocate POD CONTAINER [NODES]  as 0,1
//	release POD, restore
func TestScripts(t *testing.T) {
	golden.Run(t, func(t *testing.T) golden.Handler {
		p := &player{t: t, pods: map[string]*corev1.Pod{}}
		return p.play
	})
}

type player struct {
	t       *testing.T
	machine *topology.Topology
	args    []string
	static  *Static
	pods    map[string]*corev1.Pod
}

func (p *player) play(c golden.Command) string {
	switch c.Name {
	case "machine":
		p.args = c.Args
		return p.boot()
	case "pod":
		p.pods[c.Args[0]] = p.pod(c.Args[0], c.Args[1:])
		return ""
	case "hints":
		pod, container := p.container(c.Args)
		return shown(p.static.Hints(pod, container))
	case "podhints":
		return shown(p.static.PodHints(p.pods[c.Args[0]]))
	case "allocate":
		pod, container := p.container(c.Args)
		var nodes topology.Mask
		if len(c.Args) == 3 {
			for word := range strings.SplitSeq(c.Args[2], ",") {
				node, err := strconv.Atoi(word)
				p.check(err)
				nodes |= topology.NewMask(node)
			}
		}
		if err := p.static.Allocate(pod, container, nodes); err != nil {
			return "error: " + err.Error()
		}
		return "nodes " + p.static.Nodes(pod.UID, container.Name).String()
	case "release":
		p.static.Release(types.UID(c.Args[0]))
		return ""
	case "restore":
		state := p.static.State
		p.args = append(c.Args, p.args[len(c.Args):]...)
		if said := p.boot(); said != "" {
			return said
		}
		if err := p.static.Restore(state); err != nil {
			return "error: " + err.Error()
		}
		return "restored"
	}
	p.t.Fatalf("unknown command %s", c.Name)
	return ""
}

func (p *player) check(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *player) boot() string {
	p.machine = &topology.Topology{Memory: map[int]topology.Memory{}}
	reserved, total := map[int]Amounts{}, int64(0)
	for i, arg := range p.args {
		if rest, found := strings.CutPrefix(arg, "reserve="); found {
			node, amount, _ := strings.Cut(rest, ":")
			n, err := strconv.Atoi(node)
			p.check(err)
			reserved[n] = p.amounts(amount)
			total += reserved[n][corev1.ResourceMemory]
			continue
		}
		if rest, found := strings.CutPrefix(arg, "total="); found {
			total = p.amounts(rest)[corev1.ResourceMemory]
			continue
		}
		a := p.amounts(arg)
		m := topology.Memory{Total: a[corev1.ResourceMemory], HugePages: map[int64]int64{}}
		if bytes := a["hugepages-2Mi"]; bytes > 0 {
			m.HugePages[2<<20] = bytes
		}
		p.machine.Memory[i] = m
	}
	var err error
	if p.static, err = NewStatic(p.machine, reserved, total); err != nil {
		return "error: " + err.Error()
	}
	return ""
}

func (p *player) amounts(text string) Amounts {
	p.t.Helper()
	memory, pages, both := strings.Cut(text, "/")
	a := Amounts{}
	for name, text := range map[corev1.ResourceName]string{corev1.ResourceMemory: memory, "hugepages-2Mi": pages} {
		if name == corev1.ResourceMemory || both {
			q, err := resource.ParseQuantity(text)
			p.check(err)
			a[name] = q.Value()
		}
	}
	return a
}

func (p *player) pod(name string, containers []string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	for _, text := range containers {
		name, amount, _ := strings.Cut(text, "=")
		kind, inner, special := strings.Cut(name, ":")
		list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		for name, bytes := range p.amounts(amount) {
			list[name] = *resource.NewQuantity(bytes, resource.BinarySI)
		}
		c := corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: list, Limits: maps.Clone(list)}}
		if !special {
			pod.Spec.Containers = append(pod.Spec.Containers, c)
			continue
		}
		c.Name = inner
		if kind == "sidecar" {
			c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	return pod
}

func (p *player) container(args []string) (*corev1.Pod, *corev1.Container) {
	pod := p.pods[args[0]]
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == args[1] {
				return pod, &list[i]
			}
		}
	}
	p.t.Fatalf("pod %s has no container %s", args[0], args[1])
	return nil, nil
}

func shown(hints topology.Hints) string {
	if hints == nil {
		return "no preference"
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(hints)) {
		var words []string
		for _, h := range hints[name] {
			word := h.Nodes.String()
			if h.Preferred {
				word += "*"
			}
			words = append(words, word)
		}
		lines = append(lines, name+" ["+strings.Join(words, " ")+"]")
	}
	return strings.Join(lines, "\n")
}

func TestOnlyGuaranteedPodsHaveMemoryOfTheirOwn(t *testing.T) {
	s, err := NewStatic(&topology.Topology{Memory: map[int]topology.Memory{0: {Total: 1 << 30}}}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")},
	}}}}}
	c := &p.Spec.Containers[0]
	if err := s.Allocate(p, c, 0); err != nil || s.Nodes(p.UID, "a") != 0 || s.Hints(p, c) != nil || s.PodHints(p) != nil {
		t.Errorf("%v, %v, %v, %v", err, s.Nodes(p.UID, "a"), s.Hints(p, c), s.PodHints(p))
	}
}

func TestContainersOfAPodWithResourcesOfItsOwnShareTheMemoryOfAllNodes(t *testing.T) {
	s, err := NewStatic(&topology.Topology{Memory: map[int]topology.Memory{0: {Total: 1 << 30}}}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := topologytest.PodWithResources()
	if class := podspec.QOSClassOf(p); class != corev1.PodQOSGuaranteed {
		t.Fatalf("the pod is %s", class)
	}
	if hints := s.PodHints(p); hints != nil {
		t.Errorf("hints of the pod: %v", hints)
	}
	for _, c := range []*corev1.Container{&p.Spec.InitContainers[0], &p.Spec.Containers[0]} {
		if hints := s.Hints(p, c); hints != nil {
			t.Errorf("hints of %s: %v", c.Name, hints)
		}
		if err := s.Allocate(p, c, 0); err != nil {
			t.Error(err)
		}
		if nodes := s.Nodes(p.UID, c.Name); nodes != 0 {
			t.Errorf("%s has memory of nodes %s", c.Name, nodes)
		}
	}
}

func TestEarlierMemoryOfAPodWithResourcesOfItsOwnIsKeptUntilItEnds(t *testing.T) {
	s, err := NewStatic(&topology.Topology{Memory: map[int]topology.Memory{0: {Total: 1 << 30}}}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := topologytest.PodWithResources()
	c, node := &p.Spec.Containers[0], topology.NewMask(0)
	if err := s.Restore(State{p.UID: {c.Name: {Nodes: node, Amounts: Amounts{corev1.ResourceMemory: 1 << 20}}}}); err != nil {
		t.Fatal(err)
	}
	if hints := s.Hints(p, c); hints != nil {
		t.Errorf("hints: %v", hints)
	}
	if err := s.Allocate(p, c, 0); err != nil || s.Nodes(p.UID, c.Name) != node {
		t.Errorf("after another admission: memory of nodes %s, %v", s.Nodes(p.UID, c.Name), err)
	}
	s.Release(p.UID)
	if pods := s.Pods(); len(pods) != 0 {
		t.Errorf("after its end: %v", pods)
	}
}
