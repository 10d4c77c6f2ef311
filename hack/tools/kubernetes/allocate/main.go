// Program allocate allocates CPUs with the static policy of the real kubelet's CPU manager:
// it reads machines with steps from the standard input, as JSON, and writes what each step
// yields. The comparison of svclet's policy with it is in svclet/cpus.
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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
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
}

// CPU is where a logical CPU is.
type CPU struct{ ID, Core, Socket, Node int }

// Step allocates CPUs to the container of a guaranteed pod, aligned to NUMA nodes if there
// are any, or releases them if it has none.
type Step struct {
	Pod   string
	CPUs  int
	Nodes []int
}

// Answer is what a step yields: the hints before an allocation, as 0,1* for a preferred one,
// and the CPUs, or an error.
type Answer struct {
	Hints []string
	CPUs  string
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
		all, err := q.play()
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
		aligned.hint = topologymanager.TopologyHint{}
		if len(step.Nodes) > 0 {
			mask, err := bitmask.NewBitMask(step.Nodes...)
			if err != nil {
				return nil, err
			}
			aligned.hint.NUMANodeAffinity = mask
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

func shown(h topologymanager.TopologyHint) string {
	words := strings.Fields(strings.Trim(fmt.Sprint(h.NUMANodeAffinity.GetBits()), "[]"))
	text := strings.Join(words, ",")
	if h.Preferred {
		text += "*"
	}
	return text
}

func podOf(step Step) *corev1.Pod {
	list := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(step.CPUs), resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("1Mi")}
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
