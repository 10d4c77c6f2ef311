package runtime

import (
	"cmp"
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/svclet/pod"
)

const (
	// maxInspections bounds the pods that are inspected in parallel.
	maxInspections = 8
	// slowInspection is how long an inspection may delay other pods: the runtime
	// answers within milliseconds, unless a container hangs.
	slowInspection = time.Second
	// podsTimeout bounds the inspections of [Client.Pods].
	podsTimeout = 5 * time.Second
)

// Pod is what the runtime holds of one pod. What Observed points to is shared and
// must not be modified.
type Pod struct {
	UID             types.UID
	Namespace, Name string
	// Labels are those that the pod had when the newest of its sandboxes was created.
	Labels   map[string]string
	Observed pod.Observed
	// Err is why an existing pod could not be inspected; Observed is then empty and
	// not valid.
	Err error
}

// Pods inspects all pods. A pod about which the runtime's answer is invalid or
// takes longer than 5 seconds has an Err of its own. An error is returned if the
// pods cannot be listed.
func (c *Client) Pods(ctx context.Context) ([]Pod, error) {
	listings, _, err := c.list(ctx, "")
	if err != nil {
		return nil, err
	}
	pods := make([]Pod, 0, len(listings))
	for uid, listing := range listings {
		pods = append(pods, Pod{UID: uid, Namespace: listing.identity.Namespace, Name: listing.identity.Name, Labels: listing.podLabels()})
	}
	slices.SortFunc(pods, func(a, b Pod) int { return cmp.Compare(a.UID, b.UID) })
	inspecting, cancel := context.WithTimeout(ctx, podsTimeout)
	defer cancel()
	group := errgroup.Group{}
	group.SetLimit(maxInspections)
	for i := range pods {
		group.Go(func() error {
			seen, err := c.inspect(inspecting, pods[i].UID, listings[pods[i].UID])
			pods[i].Observed, pods[i].Err = seen.observed, err
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return pods, ctx.Err()
}

// Pod inspects one pod now. The result is empty if the runtime holds nothing of
// the pod. Inspections of one pod never overlap, and their Sequence is their
// order.
func (c *Client) Pod(ctx context.Context, uid types.UID) (pod.Observed, error) {
	seen, err := c.inspect(ctx, uid, nil)
	return seen.observed, err
}

// listing is what the runtime's lists contain of one pod.
type listing struct {
	identity   PodIdentity
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
	// sequence was taken before the lists were requested.
	sequence uint64
	// print is the fingerprint of what exists and its state.
	print uint64
}

// podLabels returns the pod's labels at the creation of its newest sandbox.
func (l *listing) podLabels() map[string]string {
	if len(l.sandboxes) == 0 {
		return nil
	}
	newest := slices.MaxFunc(l.sandboxes, func(a, b *runtimeapi.PodSandbox) int {
		return cmp.Or(cmp.Compare(a.GetMetadata().GetAttempt(), b.GetMetadata().GetAttempt()), cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()))
	})
	return ReadPodLabels(newest.GetLabels())
}

// list requests the sandboxes and containers of one pod, or of all pods if uid is
// empty, and also returns the listings' sequence. What the agent has not created
// is left out.
func (c *Client) list(ctx context.Context, uid types.UID) (map[types.UID]*listing, uint64, error) {
	var sandboxFilter *runtimeapi.PodSandboxFilter
	var containerFilter *runtimeapi.ContainerFilter
	of := ""
	if uid != "" {
		selector := map[string]string{PodUIDLabel: string(uid)}
		sandboxFilter = &runtimeapi.PodSandboxFilter{LabelSelector: selector}
		containerFilter = &runtimeapi.ContainerFilter{LabelSelector: selector}
		of = " of pod " + string(uid)
	}
	sequence := c.nextSequence()
	var sandboxes []*runtimeapi.PodSandbox
	if err := c.do(ctx, "list_podsandbox", "list the sandboxes"+of, func(ctx context.Context) (err error) {
		sandboxes, err = c.runtime.ListPodSandbox(ctx, sandboxFilter)
		return err
	}); err != nil {
		return nil, 0, err
	}
	var containers []*runtimeapi.Container
	if err := c.do(ctx, "list_containers", "list the containers"+of, func(ctx context.Context) (err error) {
		containers, err = c.runtime.ListContainers(ctx, containerFilter)
		return err
	}); err != nil {
		return nil, 0, err
	}
	return c.group(uid, sequence, sandboxes, containers), sequence, nil
}

// group groups list results by pod. If uid is not empty, it drops all other pods,
// whatever the runtime has answered.
func (c *Client) group(
	uid types.UID, sequence uint64, sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container,
) map[types.UID]*listing {
	listings := map[types.UID]*listing{}
	of := func(id string, labels map[string]string) *listing {
		identity, ok := ReadPodIdentity(labels)
		if !ok || id == "" || uid != "" && identity.UID != uid {
			return nil
		}
		if listings[identity.UID] == nil {
			listings[identity.UID] = &listing{identity: identity, sequence: sequence}
		}
		return listings[identity.UID]
	}
	for _, sandbox := range sandboxes {
		if listing := of(sandbox.GetId(), sandbox.GetLabels()); listing != nil {
			listing.sandboxes = append(listing.sandboxes, sandbox)
			listing.print += fingerprint(c.seed, sandbox.GetId(), int32(sandbox.GetState()))
		}
	}
	for _, container := range containers {
		if listing := of(container.GetId(), container.GetLabels()); listing != nil {
			listing.containers = append(listing.containers, container)
			listing.print += fingerprint(c.seed, container.GetId(), int32(container.GetState()))
		}
	}
	return listings
}

// inspection is the result of one inspection.
type inspection struct {
	observed pod.Observed
	identity PodIdentity
	// revision is the Sequence of the first of the latest inspections that found the
	// same.
	revision uint64
}

// inspect inspects one pod: the lists contain what exists, and statuses that are not
// cached are requested. The given listing is used unless the pod has been
// inspected since it was requested.
func (c *Client) inspect(ctx context.Context, uid types.UID, given *listing) (inspection, error) {
	e, err := c.acquire(ctx, uid)
	if err != nil {
		return inspection{}, err
	}
	defer c.release(uid, e)
	if given == nil || given.sequence <= e.sequence {
		listings, sequence, err := c.list(ctx, uid)
		if err != nil {
			return inspection{}, err
		}
		if given = listings[uid]; given == nil {
			given = &listing{identity: e.identity, sequence: sequence}
		}
	}
	observed, fresh, err := c.read(ctx, e, given)
	if err != nil {
		return inspection{}, err
	}
	revision := c.store(uid, e, given, observed, fresh)
	observed.Sequence = given.sequence
	return inspection{observed: observed, identity: e.identity, revision: revision}, nil
}

// read translates a listing and requests the statuses that it needs. fresh are
// those to be cached.
func (c *Client) read(ctx context.Context, e *entry, from *listing) (pod.Observed, []cachedStatus, error) {
	var observed pod.Observed
	var fresh []cachedStatus
	for _, listed := range from.sandboxes {
		sandbox := translateSandbox(listed)
		known, ok := c.cached(e, listed.Id, int32(listed.GetState()))
		switch {
		case !sandbox.Ready:
		case ok:
			sandbox.IPs = known.ips
		default:
			status, err := c.SandboxStatus(ctx, listed.Id)
			if IsNotFound(err) {
				continue
			}
			if err != nil {
				return pod.Observed{}, nil, err
			}
			sandbox.IPs = sandboxIPs(status)
			if len(sandbox.IPs) > 0 || onHostNetwork(status) {
				fresh = append(fresh, cachedStatus{id: listed.Id, known: true, state: int32(listed.GetState()), ips: sandbox.IPs})
			}
		}
		observed.Sandboxes = append(observed.Sandboxes, sandbox)
	}
	for _, listed := range from.containers {
		if known, ok := c.cached(e, listed.Id, int32(listed.GetState())); ok {
			observed.Containers = append(observed.Containers, *known.container)
			continue
		}
		status, err := c.ContainerStatus(ctx, listed.Id)
		if IsNotFound(err) {
			continue
		}
		if err != nil {
			return pod.Observed{}, nil, err
		}
		container := translateContainer(listed, status, c.name)
		if container.State == pod.Exited {
			container.Message = endMessage(ctx, status)
		}
		observed.Containers = append(observed.Containers, container)
		if container.State != pod.Unknown {
			fresh = append(fresh, cachedStatus{id: listed.Id, known: true, state: int32(status.GetState()), container: &container})
		}
	}
	newestFirst(&observed)
	boundMessages(observed.Containers)
	return observed, fresh, nil
}
