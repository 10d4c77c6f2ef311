// Program allocate allocates CPUs and memory with the static policies of the real kubelet: it
// reads machines with steps from the standard input, as JSON, and writes what each step
// yields. The comparisons of svclet's policies with it are in svclet/cpus and svclet/memory.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/go-logr/logr"
	cadvisorapi "github.com/google/cadvisor/info/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	memorystate "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
	"k8s.io/utils/cpuset"
)

// Question is a machine, the options of the policy, and what is done one after the other.
type Question struct {
	CPUs     []CPU
	Options  map[string]string
	Reserved string
	Steps    []Step
	// Memory is that of the NUMA nodes, in bytes, of which ReservedMemory is kept: if there is
	// some, memory is allocated in place of CPUs.
	Memory         []uint64
	ReservedMemory map[int]uint64
}

// CPU is where a logical CPU is.
type CPU struct{ ID, Core, Socket, Node int }

// Step allocates CPUs to the container of a guaranteed pod, aligned to NUMA nodes if there
// are any, or releases them if it has none.
type Step struct {
	Pod    string
	CPUs   int
	Memory int64
	Nodes  []int
}

// Answer is what a step yields: the hints before an allocation, as 0,1* for a preferred one,
// and the CPUs or the nodes of the memory, or an error.
type Answer struct {
	Hints []string
	CPUs  string
	Nodes string
	Error string
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "allocate:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	if err := utilfeature.DefaultMutableFeatureGate.Set("CPUManagerPolicyAlphaOptions=true,CPUManagerPolicyBetaOptions=true"); err != nil {
		return err
	}
	questions, answers := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	for {
		var q Question
		if err := questions.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		play := q.play
		if len(q.Memory) > 0 {
			play = q.playMemory
		}
		all, err := play()
		if err != nil {
			return err
		}
		if err := answers.Encode(all); err != nil {
			return err
		}
	}
}

// nodes is what the topology manager has decided for the next container.
type nodes struct {
	topologymanager.Store
	hint topologymanager.TopologyHint
}

func (n *nodes) GetAffinity(string, string) topologymanager.TopologyHint { return n.hint }

// set decides for these nodes, or for none.
func (n *nodes) set(list []int) error {
	n.hint = topologymanager.TopologyHint{}
	if len(list) == 0 {
		return nil
	}
	mask, err := bitmask.NewBitMask(list...)
	n.hint.NUMANodeAffinity = mask
	return err
}

func (q *Question) play() ([]Answer, error) {
	reserved, err := cpuset.Parse(q.Reserved)
	if err != nil {
		return nil, err
	}
	aligned := &nodes{Store: topologymanager.NewFakeManagerWithPolicy(topologymanager.NewNonePolicy())}
	logger := logr.Discard()
	policy, err := cpumanager.NewStaticPolicy(logger, q.topology(), reserved.Size(), reserved, aligned, q.Options)
	if err != nil {
		return nil, err
	}
	s := state.NewMemoryState(logger)
	if err := policy.Start(logger, s); err != nil {
		return nil, err
	}
	var all []Answer
	for _, step := range q.Steps {
		var a Answer
		if step.CPUs == 0 {
			if err := policy.RemoveContainer(logger, s, step.Pod, "c"); err != nil {
				return nil, err
			}
			all = append(all, a)
			continue
		}
		pod := podOf(step)
		for _, h := range policy.GetTopologyHints(logger, s, pod, &pod.Spec.Containers[0])[string(corev1.ResourceCPU)] {
			a.Hints = append(a.Hints, shown(h))
		}
		if err := aligned.set(step.Nodes); err != nil {
			return nil, err
		}
		if err := policy.Allocate(logger, s, pod, &pod.Spec.Containers[0]); err != nil {
			a.Error = err.Error()
		} else if cpus, exclusive := s.GetCPUSet(step.Pod, "c"); exclusive {
			a.CPUs = cpus.String()
		}
		all = append(all, a)
	}
	return all, nil
}

func (q *Question) playMemory() ([]Answer, error) {
	aligned := &nodes{Store: topologymanager.NewFakeManagerWithPolicy(topologymanager.NewNonePolicy())}
	logger := logr.Discard()
	machine, reserved := &cadvisorapi.MachineInfo{}, map[int]map[corev1.ResourceName]uint64{}
	for i, bytes := range q.Memory {
		machine.Topology = append(machine.Topology, cadvisorapi.Node{Id: i, Memory: bytes})
		reserved[i] = map[corev1.ResourceName]uint64{corev1.ResourceMemory: q.ReservedMemory[i]}
	}
	policy, err := memorymanager.NewPolicyStatic(logger, machine, reserved, aligned)
	if err != nil {
		return nil, err
	}
	s := memorystate.NewMemoryState(logger)
	if err := policy.Start(logger, s); err != nil {
		return nil, err
	}
	var all []Answer
	for _, step := range q.Steps {
		var a Answer
		if step.Memory == 0 {
			policy.RemoveContainer(logger, s, step.Pod, "c")
			all = append(all, a)
			continue
		}
		pod := podOf(step)
		for _, h := range policy.GetTopologyHints(logger, s, pod, &pod.Spec.Containers[0])[string(corev1.ResourceMemory)] {
			a.Hints = append(a.Hints, shown(h))
		}
		if err := aligned.set(step.Nodes); err != nil {
			return nil, err
		}
		if err := policy.Allocate(logger, s, pod, &pod.Spec.Containers[0]); err != nil {
			a.Error = err.Error()
		}
		for _, block := range s.GetMemoryBlocks(step.Pod, "c") {
			a.Nodes = list(block.NUMAAffinity)
		}
		all = append(all, a)
	}
	return all, nil
}

func list(nodes []int) string {
	return strings.Join(strings.Fields(strings.Trim(fmt.Sprint(nodes), "[]")), ",")
}

func shown(h topologymanager.TopologyHint) string {
	text := list(h.NUMANodeAffinity.GetBits())
	if h.Preferred {
		text += "*"
	}
	return text
}

func podOf(step Step) *corev1.Pod {
	list := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(max(step.CPUs, 1)), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(max(step.Memory, 1<<20), resource.BinarySI),
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: step.Pod, UID: types.UID(step.Pod)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()}}}},
	}
}

func (q *Question) topology() *topology.CPUTopology {
	t := &topology.CPUTopology{NumCPUs: len(q.CPUs), CPUDetails: topology.CPUDetails{}}
	cores, sockets, numa := map[int]bool{}, map[int]bool{}, map[int]bool{}
	for _, c := range q.CPUs {
		// One cache for a socket: without the option that prefers caches, it has no effect.
		t.CPUDetails[c.ID] = topology.CPUInfo{NUMANodeID: c.Node, SocketID: c.Socket, CoreID: c.Core, UncoreCacheID: c.Socket}
		cores[c.Core], sockets[c.Socket], numa[c.Node] = true, true, true
	}
	t.NumCores, t.NumSockets, t.NumNUMANodes, t.NumUncoreCache = len(cores), len(sockets), len(numa), len(sockets)
	return t
}
