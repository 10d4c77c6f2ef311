package claims

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"
)

// Prepare lets the drivers prepare the claims of a pod, before its sandbox is created. Claims
// that are prepared are not prepared again.
func (m *Manager) Prepare(ctx context.Context, p *corev1.Pod) error {
	wanted, err := m.wanted(ctx, p)
	if err != nil || len(wanted) == 0 {
		return err
	}
	held, release, err := m.use(ctx, p.UID, wanted)
	if err != nil {
		return err
	}
	defer release()
	batches := map[string][]*draapi.Claim{}
	for uid, c := range held {
		for _, driver := range driversOf(wanted[uid]) {
			if !c.prepared[driver] {
				batches[driver] = append(batches[driver], &draapi.Claim{Namespace: c.Namespace, Name: c.Name, Uid: string(uid)})
			}
		}
	}
	var failures []error
	for _, driver := range slices.Sorted(maps.Keys(batches)) {
		failures = append(failures, m.prepareBy(ctx, driver, batches[driver], held))
	}
	return errors.Join(failures...)
}

// object is a claim that a pod uses, with the names that the pod has for it.
type object struct {
	*resourceapi.ResourceClaim
	names []string
}

// driversOf returns the drivers of the devices that are allocated to a claim.
func driversOf(o *object) []string {
	var all []string
	for _, result := range o.Status.Allocation.Devices.Results {
		all = append(all, result.Driver)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// wanted reads the claims of a pod and checks that the pod may use them.
func (m *Manager) wanted(ctx context.Context, p *corev1.Pod) (map[types.UID]*object, error) {
	all := map[types.UID]*object{}
	add := func(ref, name string, generated bool) error {
		if m.o.Get == nil {
			return errors.New("resource claims need an API server: leave resourceClaims out")
		}
		found, err := m.o.Get(ctx, p.Namespace, name)
		if err != nil {
			return fmt.Errorf("failed to get ResourceClaim %s/%s: %w", p.Namespace, name, err)
		}
		if err := usable(p, found, generated); err != nil {
			return err
		}
		if all[found.UID] == nil {
			all[found.UID] = &object{ResourceClaim: found}
		}
		all[found.UID].names = append(all[found.UID].names, ref)
		return nil
	}
	for i := range p.Spec.ResourceClaims {
		ref := &p.Spec.ResourceClaims[i]
		name, generated, err := resourceclaim.Name(p, ref)
		if err == nil && name != nil { // else the template yields no claim for this pod
			err = add(ref.Name, *name, generated)
		}
		if err != nil {
			return nil, err
		}
	}
	if s := p.Status.ExtendedResourceClaimStatus; s != nil {
		if err := add(extended, s.ResourceClaimName, true); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// usable returns why a pod may not use a claim.
func usable(p *corev1.Pod, c *resourceapi.ResourceClaim, generated bool) error {
	if generated {
		if err := resourceclaim.IsForPod(p, c, false); err != nil {
			return err
		}
	}
	if !resourceclaim.IsReservedForPod(p, c, false) {
		return fmt.Errorf("ResourceClaim %s/%s is not reserved for the pod", c.Namespace, c.Name)
	}
	if c.Status.Allocation == nil {
		return fmt.Errorf("ResourceClaim %s/%s is not allocated", c.Namespace, c.Name)
	}
	return nil
}

// use records that a pod uses claims. It waits for other calls for the same claims; the
// caller calls release after its own.
func (m *Manager) use(ctx context.Context, uid types.UID, wanted map[types.UID]*object) (held map[types.UID]*claim, release func(), err error) {
	held = map[types.UID]*claim{}
	release = func() {
		for id, c := range held {
			m.forgetUnused(id, c)
			<-c.turn
		}
	}
	// The order is the same for all pods, so that no two wait for each other.
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		c, err := m.take(ctx, id, func() *claim {
			return &claim{Namespace: wanted[id].Namespace, Name: wanted[id].Name, Pods: map[types.UID][]string{}, Devices: map[string][]device{},
				turn: make(chan struct{}, 1), prepared: map[string]bool{}}
		})
		if err != nil {
			release()
			return nil, nil, err
		}
		held[id] = c
	}
	if err := m.addPod(uid, wanted, held); err != nil {
		release()
		return nil, nil, err
	}
	return held, release, nil
}

// addPod adds a pod to those that use claims, and saves that: after a restart of the agent they
// are not unprepared before this pod, too, has ended. After an error nothing has been added.
func (m *Manager) addPod(uid types.UID, wanted map[types.UID]*object, held map[types.UID]*claim) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var added []*claim
	for id, c := range held {
		if _, uses := c.Pods[uid]; !uses {
			added = append(added, c)
		}
		c.Pods[uid] = wanted[id].names
	}
	if len(added) == 0 {
		return nil
	}
	err := m.save()
	if err != nil {
		for _, c := range added {
			delete(c.Pods, uid)
		}
	}
	return err
}

// forgetUnused forgets a claim that no pod uses.
func (m *Manager) forgetUnused(id types.UID, c *claim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(c.Pods) == 0 {
		delete(m.claims, id)
	}
}

// take waits until it is the caller's turn with a claim, and returns it. A claim that is not
// known is created, or is nil without create.
func (m *Manager) take(ctx context.Context, id types.UID, create func() *claim) (*claim, error) {
	for {
		m.mu.Lock()
		c := m.claims[id]
		if c == nil && create != nil {
			c = create()
			m.claims[id] = c
		}
		m.mu.Unlock()
		if c == nil {
			return nil, nil
		}
		select {
		case c.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		m.mu.Lock()
		current := m.claims[id] == c
		m.mu.Unlock()
		if current {
			return c, nil
		}
		<-c.turn // It was unprepared meanwhile.
	}
}

// prepareBy lets a driver prepare claims.
func (m *Manager) prepareBy(ctx context.Context, name string, batch []*draapi.Claim, held map[types.UID]*claim) error {
	client, err := m.client(name)
	if err != nil {
		return err
	}
	if err := m.called(name, batch, held); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := client.NodePrepareResources(ctx, &draapi.NodePrepareResourcesRequest{Claims: batch})
	if err != nil {
		return fmt.Errorf("driver %s cannot prepare resources: %w", name, err)
	}
	var failures []error
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, of := range batch {
		result, answered := answer.GetClaims()[of.GetUid()]
		switch {
		case !answered:
			failures = append(failures, fmt.Errorf("driver %s has left out ResourceClaim %s/%s", name, of.GetNamespace(), of.GetName()))
		case result.GetError() != "":
			failures = append(failures, fmt.Errorf("driver %s cannot prepare ResourceClaim %s/%s: %s", name, of.GetNamespace(), of.GetName(), result.GetError()))
		default:
			c := held[types.UID(of.GetUid())]
			c.Devices[name], c.prepared[name] = devicesOf(result.GetDevices()), true
		}
	}
	return errors.Join(append(failures, m.save())...)
}

// called records that a driver is called for claims: whenever the agent ends, the driver
// unprepares them at the end of their pods.
func (m *Manager) called(name string, batch []*draapi.Claim, held map[types.UID]*claim) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, of := range batch {
		c := held[types.UID(of.GetUid())]
		if _, known := c.Devices[name]; !known {
			c.Devices[name] = nil
		}
	}
	return m.save()
}

func devicesOf(list []*draapi.Device) []device {
	all := []device{}
	for _, d := range list {
		all = append(all, device{Requests: d.GetRequestNames(), Pool: d.GetPoolName(), Name: d.GetDeviceName(), CDI: d.GetCdiDeviceIds(), ShareID: d.GetShareId()})
	}
	return all
}

// Unprepare releases the claims of a pod whose containers have ended. Drivers unprepare those
// that no other pod uses. After an error it is called again.
func (m *Manager) Unprepare(ctx context.Context, uid types.UID) error {
	m.mu.Lock()
	var ids []types.UID
	for id, c := range m.claims {
		if _, uses := c.Pods[uid]; uses {
			ids = append(ids, id)
		}
	}
	m.mu.Unlock()
	var failures []error
	for _, id := range ids {
		failures = append(failures, m.release(ctx, id, uid))
	}
	return errors.Join(failures...)
}

// release releases one claim of a pod.
func (m *Manager) release(ctx context.Context, id, uid types.UID) error {
	c, err := m.take(ctx, id, nil)
	if c == nil {
		return err
	}
	defer func() { <-c.turn }()
	m.mu.Lock()
	_, uses := c.Pods[uid]
	others := len(c.Pods) > 1
	drivers := slices.Sorted(maps.Keys(c.Devices))
	m.mu.Unlock()
	if uses && !others {
		for _, name := range drivers {
			if err := m.unprepareBy(ctx, name, &draapi.Claim{Namespace: c.Namespace, Name: c.Name, Uid: string(id)}); err != nil {
				return err
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if delete(c.Pods, uid); len(c.Pods) == 0 {
		delete(m.claims, id)
	}
	return m.save()
}

// unprepareBy lets a driver unprepare a claim. A driver has to accept one that it has not
// prepared.
func (m *Manager) unprepareBy(ctx context.Context, name string, of *draapi.Claim) error {
	client, err := m.client(name)
	if err != nil {
		return fmt.Errorf("ResourceClaim %s/%s: %w", of.GetNamespace(), of.GetName(), err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := client.NodeUnprepareResources(ctx, &draapi.NodeUnprepareResourcesRequest{Claims: []*draapi.Claim{of}})
	if err != nil {
		return fmt.Errorf("driver %s cannot unprepare ResourceClaim %s/%s: %w", name, of.GetNamespace(), of.GetName(), err)
	}
	result, answered := answer.GetClaims()[of.GetUid()]
	switch {
	case !answered:
		return fmt.Errorf("driver %s has left out ResourceClaim %s/%s", name, of.GetNamespace(), of.GetName())
	case result.GetError() != "":
		return fmt.Errorf("driver %s cannot unprepare ResourceClaim %s/%s: %s", name, of.GetNamespace(), of.GetName(), result.GetError())
	}
	return nil
}
