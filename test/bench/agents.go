package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/svclet/image/pause"
	"svc.dev/svc/test/launch"
)

const (
	// benchNode is the node of the agents, agentNamespace that of their pods.
	benchNode      = "bench"
	agentNamespace = "bench-agent"
)

// agentTrial is a trial whose node is ready, with a watch on its pods.
type agentTrial struct {
	*trial
	machine *launch.Machine
	pods    *podWatch
}

// withAgent calls fn when the node is ready.
func withAgent(ctx context.Context, t *trial, fn func(*agentTrial) error) error {
	s, ok := t.system.(*agentSystem)
	if !ok {
		return fmt.Errorf("%s is not a node agent", t.system.Name())
	}
	clients, err := t.clients(ctx, 1)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	if err := t.namespace(ctx, clients[0], agentNamespace); err != nil {
		return err
	}
	config, err := t.config()
	if err != nil {
		return err
	}
	pods, err := watchPods(ctx, config, agentNamespace)
	if err != nil {
		return err
	}
	defer pods.stop()
	a := &agentTrial{trial: t, machine: s.machine, pods: pods}
	if err := a.makeRootCA(ctx); err != nil {
		return err
	}
	until, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := t.instance.poll(until, a.nodeReady); err != nil {
		return err
	}
	return fn(a)
}

// makeRootCA creates the ConfigMap that the token volume of a pod contains.
func (a *agentTrial) makeRootCA(ctx context.Context) error {
	return ctrlclient.IgnoreAlreadyExists(a.pods.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: agentNamespace, Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": "none"},
	}))
}

func (a *agentTrial) nodeReady(ctx context.Context) error {
	var node corev1.Node
	if err := a.pods.Get(ctx, ctrlclient.ObjectKey{Name: benchNode}, &node); err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return errors.New("the node is not ready")
}

// agentPod returns a pod with an idle container that exits at once on SIGTERM, and
// with the token volume that every pod of a cluster has.
func agentPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: agentNamespace, Name: name, Labels: map[string]string{"app": "bench"}},
		Spec: corev1.PodSpec{
			NodeName: benchNode, ServiceAccountName: "default", AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{
				Name: "main", Image: pause.Name, ImagePullPolicy: corev1.PullNever,
				VolumeMounts: []corev1.VolumeMount{{Name: "token", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To[int64](3607)}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}},
				{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
			}}}}},
		},
	}
}

// create returns the time from the request until the pod runs.
func (a *agentTrial) create(ctx context.Context, name string) (time.Duration, error) {
	return a.pods.took(ctx, name, isRunning(0), func() error { return a.pods.Create(ctx, agentPod(name)) })
}

// remove returns the time from the request until the pod is deleted.
func (a *agentTrial) remove(ctx context.Context, name string) (time.Duration, error) {
	return a.pods.took(ctx, name, isGone, func() error { return a.pods.Delete(ctx, agentPod(name)) })
}

// oneByOne calls do for n pods, one after the other.
func oneByOne(n int, do func(name string) (time.Duration, error)) ([]time.Duration, error) {
	var all []time.Duration
	for i := range n {
		took, err := do(fmt.Sprintf("pod-%03d", i))
		if err != nil {
			return nil, err
		}
		all = append(all, took)
	}
	slices.Sort(all)
	return all, nil
}

// atOnce calls do for n pods, all at the same time.
func atOnce(n int, do func(name string) (time.Duration, error)) ([]time.Duration, error) {
	all, errs := make([]time.Duration, n), make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { all[i], errs[i] = do(fmt.Sprintf("pod-%03d", i)) })
	}
	group.Wait()
	slices.Sort(all)
	return all, errors.Join(errs...)
}

// recordTimes records percentiles.
func (t *trial) recordTimes(name string, times []time.Duration) {
	t.record(lower(name, "p50", "ms"), percentile(times, 50))
	t.record(lower(name, "p99", "ms"), percentile(times, 99))
}

// measureAgent measures the size of what an operator installs, and the memory and
// CPU time that the agent uses while its node has no pods.
func measureAgent(ctx context.Context, t *trial) error {
	return withAgent(ctx, t, func(*agentTrial) error {
		size, err := sizeOf(t.system.Binaries())
		if err != nil {
			return err
		}
		t.record(lower("agent's binary", "size", "MB"), size)
		return t.recordIdle(ctx, agentRow(0))
	})
}

// agentRow returns the name of the rows of an agent whose pods are idle.
func agentRow(pods int) string { return fmt.Sprintf("agent, %d pods", pods) }

// measureAgentWithPods measures the same with idle pods.
func measureAgentWithPods(ctx context.Context, t *trial) error {
	return withAgent(ctx, t, func(a *agentTrial) error {
		running := 0
		for _, n := range t.sizes.AgentPods {
			_, err := atOnce(n-running, func(name string) (time.Duration, error) {
				return a.create(ctx, fmt.Sprintf("idle-%d-%s", n, name))
			})
			if err != nil {
				return err
			}
			running = n
			if err := t.recordIdle(ctx, agentRow(n)); err != nil {
				return err
			}
		}
		return a.removeAll(ctx)
	})
}

// atOnceRow returns the name of the row of pods that are created at once.
func atOnceRow(pods int) string { return fmt.Sprintf("create to Running, %d at once", pods) }

// measureFullNode measures how long a node takes to run as many pods as it may.
func measureFullNode(ctx context.Context, t *trial) error {
	return withAgent(ctx, t, func(a *agentTrial) error {
		n := t.sizes.AgentMass
		times, err := atOnce(n, func(name string) (time.Duration, error) { return a.create(ctx, name) })
		if err != nil {
			return err
		}
		t.record(lower(atOnceRow(n), "the last one", "ms"), milliseconds(times[n-1]))
		return a.removeAll(ctx)
	})
}

// removeAll deletes all pods and waits until they are gone.
func (a *agentTrial) removeAll(ctx context.Context) error {
	var pods corev1.PodList
	if err := a.pods.List(ctx, &pods, ctrlclient.InNamespace(agentNamespace)); err != nil {
		return err
	}
	_, err := atOnce(len(pods.Items), func(name string) (time.Duration, error) {
		var i int
		if _, err := fmt.Sscanf(name, "pod-%d", &i); err != nil {
			return 0, err
		}
		return a.remove(ctx, pods.Items[i].Name)
	})
	return err
}

// measurePodRestarts measures the time from the kill of a container until the API
// shows its successor running.
func measurePodRestarts(ctx context.Context, t *trial) error {
	return withAgent(ctx, t, func(a *agentTrial) error {
		if _, err := atOnce(t.sizes.AgentBurst, func(name string) (time.Duration, error) { return a.create(ctx, name) }); err != nil {
			return err
		}
		restarted, err := oneByOne(t.sizes.AgentBurst, func(name string) (time.Duration, error) {
			pid, err := a.processOf(ctx, name)
			if err != nil {
				return 0, err
			}
			return a.pods.took(ctx, name, isRunning(1), func() error { return syscall.Kill(pid, syscall.SIGKILL) })
		})
		if err != nil {
			return err
		}
		t.recordTimes("killed to restarted", restarted)
		return a.removeAll(ctx)
	})
}

// processOf returns the process ID of a pod's container.
func (a *agentTrial) processOf(ctx context.Context, name string) (int, error) {
	cri, closeCRI, err := dialCRI(a.machine.Endpoint())
	if err != nil {
		return 0, err
	}
	defer closeCRI()
	list, err := cri.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		LabelSelector: map[string]string{"io.kubernetes.pod.name": name},
	}})
	if err != nil {
		return 0, err
	}
	if len(list.Containers) != 1 {
		return 0, fmt.Errorf("%d containers of the pod %s run", len(list.Containers), name)
	}
	status, err := cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: list.Containers[0].Id, Verbose: true})
	if err != nil {
		return 0, err
	}
	var info struct{ Pid int }
	if err := json.Unmarshal([]byte(status.Info["info"]), &info); err != nil {
		return 0, fmt.Errorf("decode the runtime's information about the container of %s: %w", name, err)
	}
	return info.Pid, nil
}
