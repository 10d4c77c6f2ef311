package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/svclet/image/pause"
	"svc.dev/svc/test/launch"
)

// runtimeTimes are what the runtime alone takes to start pods, sorted: sandbox,
// create and start. It is the floor under every agent.
type runtimeTimes struct{ oneByOne, atOnce []time.Duration }

// measureRuntime starts the agents' pods straight through CRI, in a containerd
// of its own: an agent would end what it does not know.
func measureRuntime(ctx context.Context, t *trial) (times runtimeTimes, err error) {
	machine, err := launch.NewMachine(ctx)
	defer func() { err = errors.Join(err, machine.Remove()) }()
	if err != nil {
		return times, err
	}
	cri, closeCRI, err := dialCRI(machine.Endpoint())
	if err != nil {
		return times, err
	}
	defer closeCRI()
	var pods sync.Map // sandboxes
	start := func(name string) (time.Duration, error) {
		began := time.Now()
		sandbox, err := startPod(ctx, cri, machine, name)
		took := time.Since(began)
		pods.Store(name, sandbox)
		return took, err
	}
	end := func(name string) (time.Duration, error) {
		began := time.Now()
		sandbox, _ := pods.LoadAndDelete(name)
		err := endPod(ctx, cri, sandbox.(string))
		return time.Since(began), err
	}
	warm, err := start("warm-up")
	if err != nil {
		return times, fmt.Errorf("after %s: %w", warm, err)
	}
	if _, err := end("warm-up"); err != nil {
		return times, err
	}
	if times.oneByOne, err = oneByOne(t.sizes.AgentStarts, start); err != nil {
		return times, err
	}
	gone, err := oneByOne(t.sizes.AgentStarts, end)
	if err != nil {
		return times, err
	}
	if times.atOnce, err = atOnce(t.sizes.AgentBurst, start); err != nil {
		return times, err
	}
	for _, f := range []struct {
		name  string
		times []time.Duration
	}{
		{"the runtime alone, one by one", times.oneByOne},
		{fmt.Sprintf("the runtime alone, %d at once", t.sizes.AgentBurst), times.atOnce},
		{"the runtime alone, end", gone},
	} {
		t.record(floor(f.name, "p50", "ms"), percentile(f.times, 50))
		t.record(floor(f.name, "p99", "ms"), percentile(f.times, 99))
	}
	_, err = atOnce(t.sizes.AgentBurst, end)
	return times, err
}

// startPod returns the sandbox of a pod with one container.
func startPod(ctx context.Context, cri runtimeapi.RuntimeServiceClient, machine *launch.Machine, name string) (string, error) {
	logs := filepath.Join(machine.Dir, "logs", name)
	if err := os.MkdirAll(logs, 0o700); err != nil {
		return "", err
	}
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: agentNamespace, Uid: name},
		Hostname:     name,
		LogDirectory: logs,
		Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: machine.CgroupRoot() + "/pod" + name},
	}
	sandbox, err := cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		return "", err
	}
	created, err := cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox.PodSandboxId, SandboxConfig: config, Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: pause.Name},
			LogPath: "0.log", Linux: &runtimeapi.LinuxContainerConfig{},
		},
	})
	if err != nil {
		return sandbox.PodSandboxId, err
	}
	_, err = cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: created.ContainerId})
	return sandbox.PodSandboxId, err
}

// endPod stops a pod's container and sandbox, and removes them.
func endPod(ctx context.Context, cri runtimeapi.RuntimeServiceClient, sandbox string) error {
	list, err := cri.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: sandbox}})
	if err != nil {
		return err
	}
	for _, c := range list.Containers {
		if _, err := cri.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: c.Id, Timeout: 30}); err != nil {
			return err
		}
	}
	if _, err := cri.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox}); err != nil {
		return err
	}
	_, err = cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox})
	return err
}

func dialCRI(endpoint string) (runtimeapi.RuntimeServiceClient, func(), error) {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, err
	}
	return runtimeapi.NewRuntimeServiceClient(conn), func() { conn.Close() }, nil
}
