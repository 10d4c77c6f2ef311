package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// smallDisk is the size in bytes of the disk of an agent, ballast what fills it.
	smallDisk, ballast = 64 << 20, 40 << 20
	// monitoring is how often an agent measures its node fully. The disk becomes full at a
	// random time of this period.
	monitoring = 10 * time.Second
	// diskFull is the row of evictions.
	diskFull = "disk full to pod evicted"
)

// agentsOnSmallDisks returns svclet, which evicts pods when its disk is full. Kubelet is left
// out: with the same settings it evicts pods before the small disk is full.
func agentsOnSmallDisks(o options) ([]system, error) {
	o.kubelet = ""
	systems, err := agents(o)
	for _, s := range systems {
		if a, ok := s.(*agentSystem); ok {
			a.small = true
		}
	}
	return systems, err
}

// useSmallDisk puts the agent's directory on a disk of its own. Clean removes it.
func (s *agentSystem) useSmallDisk() error {
	dir := s.machine.AgentDir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	image := filepath.Join(s.machine.Dir, "disk")
	for _, args := range [][]string{
		{"truncate", "--size", fmt.Sprint(smallDisk), image}, {"mkfs.ext4", "-q", "-m", "0", image}, {"mount", "-o", "loop", image, dir},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("make a small disk: %s: %w: %s", args[0], err, out)
		}
	}
	s.agent.Fields = map[string]any{
		"evictionHard": map[string]string{"nodefs.available": "30%"}, "evictionPressureTransitionPeriod": "1s",
	}
	return nil
}

// measureEvictions measures the time from a full disk until the API shows that the pod is
// evicted.
func measureEvictions(ctx context.Context, t *trial) error {
	return withAgent(ctx, t, func(a *agentTrial) error {
		var all []time.Duration
		for i := range t.sizes.Evictions {
			took, err := a.evict(ctx, fmt.Sprintf("pod-%03d", i))
			if err != nil {
				return err
			}
			all = append(all, took)
		}
		slices.Sort(all)
		t.recordTimes(diskFull, all)
		return nil
	})
}

// evict runs a pod, and fills the disk until the pod is evicted and the node recovers.
func (a *agentTrial) evict(ctx context.Context, name string) (took time.Duration, err error) {
	if _, err := a.create(ctx, name); err != nil {
		return 0, err
	}
	if err := wait(ctx, rand.N(monitoring)); err != nil {
		return 0, err
	}
	file := filepath.Join(a.machine.AgentDir(), "ballast")
	took, err = a.pods.took(ctx, name, isEvicted, func() error { return os.WriteFile(file, make([]byte, ballast), 0o600) })
	if err := errors.Join(err, os.Remove(file)); err != nil {
		return 0, err
	}
	if _, err := a.remove(ctx, name); err != nil {
		return 0, err
	}
	until, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	return took, a.instance.poll(until, a.hasDisk)
}

// hasDisk returns an error while the node has too little free disk.
func (a *agentTrial) hasDisk(ctx context.Context) error {
	var node corev1.Node
	if err := a.pods.Get(ctx, ctrlclient.ObjectKey{Name: benchNode}, &node); err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeDiskPressure && condition.Status == corev1.ConditionFalse {
			return nil
		}
	}
	return errors.New("the node's disk is full")
}

func isEvicted(_ watch.EventType, pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == "Evicted"
}
