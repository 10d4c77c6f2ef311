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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/svclet/cgroup"
	"svc.dev/svc/svclet/container"
	"svc.dev/svc/svclet/image/pause"
	"svc.dev/svc/test/launch"
)

// runtimeAlone creates the agents' pods directly through CRI, with the calls and
// the configuration of agents. It uses its own containerd, since an agent would stop
// unknown pods. No agent can be faster.
type runtimeAlone struct {
	cri      runtimeapi.RuntimeServiceClient
	closeCRI func()
	machine  *launch.Machine
	pods     *podWatch
	cgroups  *cgroup.Manager
	options  container.Options
	running  sync.Map // of runningPod, by the pod's name
}

type runningPod struct {
	uid     types.UID
	sandbox string
}

// newRuntimeAlone reads what the configuration of the agent's pods depends on. The
// caller closes the result, also after an error.
func newRuntimeAlone(ctx context.Context, a *agentTrial) (*runtimeAlone, error) {
	r := &runtimeAlone{pods: a.pods, closeCRI: func() {}}
	var err error
	if r.machine, err = launch.NewMachine(ctx); err != nil {
		return r, err
	}
	if r.cri, r.closeCRI, err = dialCRI(r.machine.Endpoint()); err != nil {
		return r, err
	}
	var node corev1.Node
	if err := a.pods.Get(ctx, ctrlclient.ObjectKey{Name: benchNode}, &node); err != nil {
		return r, err
	}
	host, err := container.ReadHost("/")
	if err != nil {
		return r, err
	}
	r.options = container.Options{
		PodLogs: filepath.Join(r.machine.Dir, "logs"), ClusterDNS: []string{launch.ClusterDNS}, ClusterDomain: launch.ClusterDomain,
		ResolvConf: "/etc/resolv.conf", CPUCFSQuota: true, Allocatable: node.Status.Allocatable, Host: host,
	}
	if r.cgroups, err = cgroup.New(cgroup.Options{Root: r.machine.CgroupRoot(), PerQOS: true, Capacity: node.Status.Capacity}); err != nil {
		return r, err
	}
	return r, r.cgroups.Start()
}

// close stops the containerd and its pods.
func (r *runtimeAlone) close() error {
	r.closeCRI()
	return r.machine.Remove()
}

// create returns the total duration of the calls that run a pod of one container.
// The other work of agents, such as creating the pod's cgroup, volume and files,
// is done before and between the calls and does not count.
func (r *runtimeAlone) create(ctx context.Context, name string) (took time.Duration, err error) {
	pod := agentPod(name)
	// The API server sets defaults.
	if err := r.pods.Create(ctx, pod, ctrlclient.DryRunAll); err != nil {
		return 0, err
	}
	config, err := r.sandboxConfig(pod)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	sandbox, err := r.cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	took = time.Since(began)
	if err != nil {
		return 0, err
	}
	r.running.Store(name, runningPod{pod.UID, sandbox.PodSandboxId})
	request, err := r.containerRequest(ctx, pod, sandbox.PodSandboxId, config)
	if err != nil {
		return 0, err
	}
	began = time.Now()
	created, err := r.cri.CreateContainer(ctx, request)
	if err != nil {
		return 0, err
	}
	_, err = r.cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: created.ContainerId})
	return took + time.Since(began), err
}

// sandboxConfig returns the configuration of a pod's sandbox, and creates the pod's
// cgroup and log directory.
func (r *runtimeAlone) sandboxConfig(pod *corev1.Pod) (*runtimeapi.PodSandboxConfig, error) {
	if _, err := r.cgroups.Create(pod); err != nil {
		return nil, err
	}
	parent, err := r.cgroups.Parent(pod)
	if err != nil {
		return nil, err
	}
	config, err := container.Sandbox(container.SandboxInput{Options: r.options, Pod: pod, CgroupParent: parent})
	if err != nil {
		return nil, err
	}
	return config, os.MkdirAll(filepath.Join(config.LogDirectory, pod.Spec.Containers[0].Name), 0o700)
}

// containerRequest returns the request that creates the pod's container, and
// creates its volumes and files. Only service variables and the content of volumes
// differ from those of agents.
func (r *runtimeAlone) containerRequest(
	ctx context.Context, pod *corev1.Pod, sandbox string, config *runtimeapi.PodSandboxConfig,
) (*runtimeapi.CreateContainerRequest, error) {
	status, err := r.cri.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox})
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(r.machine.Dir, "pods", string(pod.UID))
	in := container.Input{
		Options: r.options, Pod: pod, Container: &pod.Spec.Containers[0],
		ImageRef: pause.Name, ImageUser: container.ImageUser{UID: ptr.To[int64](pause.UID)},
		PodIPs: []string{status.Status.Network.Ip}, Volumes: map[string]container.Volume{},
		HostsFile: filepath.Join(dir, "etc-hosts"), TerminationLog: filepath.Join(dir, "termination-log"),
	}
	for _, volume := range pod.Spec.Volumes {
		path := filepath.Join(dir, "volumes", volume.Name)
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, err
		}
		in.Volumes[volume.Name] = container.Volume{HostPath: path}
	}
	hosts, err := container.HostsFile(r.options, pod, in.PodIPs, nil)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.WriteFile(in.HostsFile, hosts, 0o600), os.WriteFile(in.TerminationLog, nil, 0o600)); err != nil {
		return nil, err
	}
	request := &runtimeapi.CreateContainerRequest{PodSandboxId: sandbox, SandboxConfig: config}
	request.Config, err = container.Config(ctx, in)
	return request, err
}

// remove returns how long the runtime takes to stop and remove a pod. The removal
// of the cgroup, which agents do, does not count.
func (r *runtimeAlone) remove(ctx context.Context, name string) (time.Duration, error) {
	value, found := r.running.LoadAndDelete(name)
	if !found {
		return 0, fmt.Errorf("the pod %s does not run", name)
	}
	pod := value.(runningPod)
	began := time.Now()
	if err := endPod(ctx, r.cri, pod.sandbox); err != nil {
		return 0, err
	}
	took := time.Since(began)
	return took, r.cgroups.Remove(ctx, pod.uid)
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
