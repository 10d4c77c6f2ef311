package cpus

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/internal/golden"
	"svc.dev/svc/svclet/topology"
	"svc.dev/svc/svclet/topology/topologytest"
)

// TestScripts plays the golden scripts in testdata.
//
//	machine SOCKETS NODES CORES THREADS [OPTION...] [reserved=LIST]
//	          NODES are per socket, CORES per node, THREADS per core; OPTION is full,
//	          distribute or socket; without a list one CPU is reserved
//	take N [from LIST]   N CPUs of all that are not reserved, or of a list
//	pod NAME CONTAINER=CPUS...  a guaranteed pod: init:NAME=CPUS, sidecar:NAME=CPUS
//	hints POD CONTAINER, podhints POD
//	allocate POD CONTAINER [NODES]  as 0,1
//	release POD
func TestScripts(t *testing.T) {
	golden.Run(t, func(t *testing.T) golden.Handler {
		p := &player{t: t, pods: map[string]*corev1.Pod{}}
		return p.play
	})
}

type player struct {
	t      *testing.T
	static *Static
	pods   map[string]*corev1.Pod
}

func (p *player) play(c golden.Command) string {
	switch c.Name {
	case "machine":
		return p.machine(c.Args)
	case "take":
		from := p.static.Shared().Difference(p.static.reserved)
		if len(c.Args) == 3 {
			from = p.cpus(c.Args[2])
		}
		taken, err := p.static.take(from, p.number(c.Args[0]))
		return p.said(taken.String(), err)
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
			nodes = topology.NewMask(p.cpus(c.Args[2]).List()...)
		}
		err := p.static.Allocate(pod, container, nodes)
		cpus, exclusive := p.static.CPUs(pod.UID, container.Name)
		if !exclusive {
			return p.said("shares "+cpus.String(), err)
		}
		return p.said(cpus.String()+", shared are "+p.static.Shared().String(), err)
	case "release":
		p.static.Release(types.UID(c.Args[0]))
		return "shared are " + p.static.Shared().String()
	}
	p.t.Fatalf("unknown command %s", c.Name)
	return ""
}

func (p *player) said(text string, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	return text
}

func shown(hints []topology.Hint) string {
	var words []string
	for _, h := range hints {
		word := h.Nodes.String()
		if h.Preferred {
			word += "*"
		}
		words = append(words, word)
	}
	if hints == nil {
		return "no preference"
	}
	return "[" + strings.Join(words, " ") + "]"
}

func (p *player) machine(args []string) string {
	var o Options
	reserved := cpuset.New()
	for _, arg := range args[4:] {
		switch list, found := strings.CutPrefix(arg, "reserved="); {
		case found:
			reserved = p.cpus(list)
		case arg == "full":
			o.FullCores = true
		case arg == "distribute":
			o.Distribute = true
		case arg == "socket":
			o.AlignBySocket = true
		default:
			p.t.Fatalf("unknown option %s", arg)
		}
	}
	machine := topologytest.Regular(p.number(args[0]), p.number(args[1]), p.number(args[2]), p.number(args[3]), 1<<30)
	var err error
	if p.static, err = NewStatic(machine, o, reserved, 1); err != nil {
		return "error: " + err.Error()
	}
	return "reserved is " + p.static.reserved.String()
}

func (p *player) pod(name string, containers []string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	for _, word := range containers {
		name, cpus, _ := strings.Cut(word, "=")
		kind, own, of := strings.Cut(name, ":")
		if !of {
			own = name
		}
		list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus), corev1.ResourceMemory: resource.MustParse("1Mi")}
		c := corev1.Container{Name: own, Resources: corev1.ResourceRequirements{Requests: list, Limits: maps.Clone(list)}}
		switch {
		case !of:
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		case kind == "sidecar":
			c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			fallthrough
		default:
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		}
	}
	return pod
}

func (p *player) container(args []string) (*corev1.Pod, *corev1.Container) {
	pod := p.pods[args[0]]
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		if i := slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == args[1] }); i >= 0 {
			return pod, &list[i]
		}
	}
	p.t.Fatalf("pod %s has no container %s", args[0], args[1])
	return nil, nil
}

func (p *player) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *player) cpus(list string) cpuset.CPUSet {
	set, err := cpuset.Parse(list)
	if err != nil {
		p.t.Fatal(err)
	}
	return set
}

func TestAStateOfAnotherMachineIsRefused(t *testing.T) {
	static := func() *Static {
		s, err := NewStatic(topologytest.Regular(1, 1, 4, 1, 1), Options{}, cpuset.New(0), 0)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for list, want := range map[string]string{
		"1-2": "", "3-5": "the machine does not have CPUs 4-5 of container c of pod u", "0": "CPUs 0 of container c of pod u are reserved",
	} {
		set, err := cpuset.Parse(list)
		if err != nil {
			t.Fatal(err)
		}
		err = static().Restore(State{Exclusive: map[types.UID]map[string]cpuset.CPUSet{"u": {"c": set}}})
		if got := fmt.Sprint(err); want != "" && got != want || want == "" && err != nil {
			t.Errorf("%s: %v", list, err)
		}
	}
}

func TestContainersOfAPodWithResourcesOfItsOwnShareCPUs(t *testing.T) {
	s, err := NewStatic(topologytest.Regular(1, 1, 8, 1, 1), Options{}, cpuset.New(0), 0)
	if err != nil {
		t.Fatal(err)
	}
	p := topologytest.PodWithResources()
	if class := podspec.QOSClassOf(p); class != corev1.PodQOSGuaranteed {
		t.Fatalf("the pod is %s", class)
	}
	if count := PodRequested(p); count != 0 {
		t.Errorf("the pod gets %d CPUs", count)
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
		if cpus, exclusive := s.CPUs(p.UID, c.Name); exclusive {
			t.Errorf("%s has CPUs %s alone", c.Name, cpus)
		}
	}
}

func TestEarlierCPUsOfAPodWithResourcesOfItsOwnAreKeptUntilItEnds(t *testing.T) {
	s, err := NewStatic(topologytest.Regular(1, 1, 8, 1, 1), Options{}, cpuset.New(0), 0)
	if err != nil {
		t.Fatal(err)
	}
	p := topologytest.PodWithResources()
	c, earlier := &p.Spec.Containers[0], cpuset.New(1, 2)
	if err := s.Restore(State{Exclusive: map[types.UID]map[string]cpuset.CPUSet{p.UID: {c.Name: earlier}}}); err != nil {
		t.Fatal(err)
	}
	if hints := s.Hints(p, c); hints != nil {
		t.Errorf("hints: %v", hints)
	}
	if err := s.Allocate(p, c, 0); err != nil {
		t.Error(err)
	}
	if cpus, exclusive := s.CPUs(p.UID, c.Name); !exclusive || !cpus.Equals(earlier) {
		t.Errorf("after another admission: %s, exclusive: %v", cpus, exclusive)
	}
	s.Release(p.UID)
	if shared := s.Shared(); shared.Size() != 8 {
		t.Errorf("shared after its end: %s", shared)
	}
}
