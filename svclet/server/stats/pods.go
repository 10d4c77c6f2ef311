package stats

import (
	"cmp"
	"context"
	"slices"

	"github.com/go-logr/logr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// running are the running containers and their sandboxes.
type running struct {
	sandboxes  map[string]*runtimeapi.PodSandbox
	containers map[string]*runtimeapi.Container
}

// pods measures the pods that have running containers.
func (p *Provider) pods(ctx context.Context, only bool) ([]statsapi.PodStats, error) {
	present, err := p.running(ctx)
	if err != nil {
		return nil, err
	}
	ofSandboxes, ofContainers, err := p.measure(ctx)
	if err != nil {
		return nil, err
	}
	measuring, cancel := context.WithTimeout(ctx, volumesTimeout)
	defer cancel()
	bySandbox := map[string]*statsapi.PodStats{}
	for _, s := range ofContainers {
		container := present.containers[s.GetAttributes().GetId()]
		sandbox := present.sandboxes[container.GetPodSandboxId()]
		if sandbox == nil {
			continue
		}
		pod := bySandbox[sandbox.Id]
		if pod == nil {
			pod = p.pod(sandbox, ofSandboxes[sandbox.Id], only)
			bySandbox[sandbox.Id] = pod
		}
		pod.Containers = append(pod.Containers, p.container(sandbox, container, s, only))
	}
	pods := make([]statsapi.PodStats, 0, len(bySandbox))
	for id, pod := range bySandbox {
		slices.SortFunc(pod.Containers, func(a, b statsapi.ContainerStats) int { return cmp.Compare(a.Name, b.Name) })
		if ofSandboxes[id] == nil {
			sumOfContainers(pod)
		}
		pod.Swap = swapOfContainers(pod)
		if !only {
			p.addStorage(measuring, pod)
		}
		pods = append(pods, *pod)
	}
	slices.SortFunc(pods, func(a, b statsapi.PodStats) int {
		return cmp.Or(cmp.Compare(a.PodRef.Namespace, b.PodRef.Namespace), cmp.Compare(a.PodRef.Name, b.PodRef.Name), a.StartTime.Compare(b.StartTime.Time))
	})
	return pods, nil
}

// running lists running containers, and the current sandbox of each pod.
func (p *Provider) running(ctx context.Context) (running, error) {
	sandboxes, err := p.runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return running{}, err
	}
	containers, err := p.runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	})
	if err != nil {
		return running{}, err
	}
	r := running{map[string]*runtimeapi.PodSandbox{}, map[string]*runtimeapi.Container{}}
	for _, s := range newestSandboxes(sandboxes) {
		r.sandboxes[s.Id] = s
	}
	for _, c := range containers {
		r.containers[c.Id] = c
	}
	return r, nil
}

// newestSandboxes keeps one sandbox per pod: a ready one, or else the newest. Two pods of
// one name are two pods: one may still end while the next one runs, or static pods of two
// sources may have the same name.
func newestSandboxes(all []*runtimeapi.PodSandbox) map[string]*runtimeapi.PodSandbox {
	kept := map[string]*runtimeapi.PodSandbox{}
	better := func(a, b *runtimeapi.PodSandbox) bool {
		if a.State != b.State {
			return a.State == runtimeapi.PodSandboxState_SANDBOX_READY
		}
		return a.CreatedAt > b.CreatedAt
	}
	for _, s := range all {
		uid := s.GetMetadata().GetUid()
		if old := kept[uid]; old == nil || better(s, old) {
			kept[uid] = s
		}
	}
	return kept
}

// newestOfEachName returns the pods without those that share their name with a pod that
// started later: metrics have the names of pods as labels, not their UIDs.
func newestOfEachName(pods []statsapi.PodStats) []statsapi.PodStats {
	kept := make([]statsapi.PodStats, 0, len(pods))
	for i := range pods {
		// Those of one name are beside each other, the newest last.
		if i+1 < len(pods) && pods[i].PodRef.Namespace == pods[i+1].PodRef.Namespace && pods[i].PodRef.Name == pods[i+1].PodRef.Name {
			continue
		}
		kept = append(kept, pods[i])
	}
	return kept
}

// measure requests the statistics of all sandboxes at once. For runtimes without
// sandbox statistics, or that fail for all sandboxes because one is being removed,
// it requests those of containers.
func (p *Provider) measure(ctx context.Context) (map[string]*runtimeapi.PodSandboxStats, []*runtimeapi.ContainerStats, error) {
	// The client would log the error, which every pod that has ended causes with some
	// runtimes, at each measurement.
	sandboxes, err := p.runtime.ListPodSandboxStats(klog.NewContext(ctx, logr.Discard()), nil)
	if err != nil {
		klog.FromContext(ctx).V(4).Info("Failed to list pod sandbox stats, using the sum of container stats", "err", err)
		containers, err := p.runtime.ListContainerStats(ctx, nil)
		return nil, containers, err
	}
	byID := make(map[string]*runtimeapi.PodSandboxStats, len(sandboxes))
	var containers []*runtimeapi.ContainerStats
	for _, s := range sandboxes {
		byID[s.GetAttributes().GetId()] = s
		containers = append(containers, s.GetLinux().GetContainers()...)
	}
	return byID, containers, nil
}
