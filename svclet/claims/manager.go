// Package claims owns the resource claims of the node's pods: the drivers that prepare the
// devices of claims (dynamic resource allocation), and what they have prepared.
package claims

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/checkpoint"
)

// Options configure a manager.
type Options struct {
	// Dir is the directory of the checkpoint.
	Dir string
	// Get reads a claim; nil in standalone mode.
	Get func(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error)
	// DeleteSlices deletes the ResourceSlices of the node, of one driver or, if that is empty, of
	// all; nil in standalone mode.
	DeleteSlices func(ctx context.Context, driver string) error
	// HealthChanged is called with the pods of which the health of a device has changed. It must
	// not block; nil does nothing.
	HealthChanged func(pods []types.UID)
	Clock         clock.WithDelayedExecution
}

// Manager knows the drivers of the node and what they have prepared.
type Manager struct {
	o    Options
	file checkpoint.File

	mu sync.Mutex
	// drivers are the registered instances of each driver; the last one is used.
	drivers map[string][]*driver
	claims  map[types.UID]*claim
	// gone are the drivers without a connected instance whose ResourceSlices are to be deleted when their
	// timers expire, due those whose timers have. changed receives after a change of due.
	gone    map[string]clock.Timer
	due     []string
	changed chan struct{}
	closed  bool
	// followers follow the health of the drivers' devices.
	followers sync.WaitGroup
}

// claim is a claim that a driver has prepared or may have.
type claim struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Pods are those that use it, with the names that they have for it.
	Pods map[types.UID][]string `json:"pods"`
	// Devices are those that are allocated to it, by driver, as the driver has prepared
	// them: nil if it may have prepared some, and has not answered.
	Devices map[string][]device `json:"devices"`

	// turn has room for the one that calls drivers for this claim.
	turn chan struct{}
	// prepared are the drivers that have prepared the claim since the agent started. After
	// a reboot of the machine they have to do it again.
	prepared map[string]bool
}

// device is a device that a driver has prepared.
type device struct {
	// Requests are those of the claim that it is for; none means all.
	Requests []string `json:"requests,omitempty"`
	Pool     string   `json:"pool"`
	Name     string   `json:"name"`
	CDI      []string `json:"cdi,omitempty"`
	ShareID  string   `json:"shareID,omitempty"`
}

// The checkpoint, in [Options.Dir].
const (
	checkpointName    = "claims_state"
	checkpointVersion = 1
)

// New returns a manager with the claims of the checkpoint.
func New(o Options) (*Manager, error) {
	m := &Manager{o: o, file: checkpoint.File{Path: filepath.Join(o.Dir, checkpointName), Version: checkpointVersion},
		drivers: map[string][]*driver{}, claims: map[types.UID]*claim{}, gone: map[string]clock.Timer{}, changed: make(chan struct{}, 1)}
	if err := os.MkdirAll(o.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("making the directory of the checkpoint of resource claims: %w", err)
	}
	if _, err := m.file.Load(&m.claims); err != nil {
		return nil, err
	}
	for _, c := range m.claims {
		c.turn, c.prepared = make(chan struct{}, 1), map[string]bool{}
	}
	return m, nil
}

// save writes the checkpoint. The caller holds mu.
func (m *Manager) save() error { return m.file.Save(m.claims) }

// Pods returns the pods for which claims are prepared.
func (m *Manager) Pods() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[types.UID]bool{}
	for _, c := range m.claims {
		for uid := range c.Pods {
			all[uid] = true
		}
	}
	return slices.Collect(maps.Keys(all))
}

// CDIDevices returns the names of the CDI devices of a container. It returns an error if
// one of its claims has not been prepared.
func (m *Manager) CDIDevices(p *corev1.Pod, c *corev1.Container) ([]string, error) {
	var all []string
	for _, ref := range references(p, c) {
		found, err := m.prepared(p, ref)
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			for _, name := range r.CDI {
				if !slices.Contains(all, name) {
					all = append(all, name)
				}
			}
		}
	}
	return all, nil
}

// Resource is a device of a claim for the pod resources API.
type Resource struct {
	ClaimNamespace, ClaimName, Driver, Pool, Device, ShareID string
	CDI                                                      []string
}

// Of returns the devices of claims that a container has.
func (m *Manager) Of(p *corev1.Pod, c *corev1.Container) []Resource {
	var all []Resource
	for _, ref := range references(p, c) {
		found, err := m.prepared(p, ref)
		if err != nil {
			continue // It has none yet.
		}
		all = append(all, found...)
	}
	return all
}

// extended is the name that pods have for the claim of their extended resources: no claim of a
// pod's spec can have it.
const extended = "<extended resources>"

// references returns the requests of claims whose devices a container gets, also those of the
// claim for its extended resources.
func references(p *corev1.Pod, c *corev1.Container) []corev1.ResourceClaim {
	s := p.Status.ExtendedResourceClaimStatus
	if s == nil {
		return c.Resources.Claims
	}
	all := slices.Clone(c.Resources.Claims)
	for _, m := range s.RequestMappings {
		if m.ContainerName == c.Name {
			all = append(all, corev1.ResourceClaim{Name: extended, Request: m.RequestName})
		}
	}
	return all
}

// prepared returns the devices of a reference of a container, in a stable order.
func (m *Manager) prepared(p *corev1.Pod, ref corev1.ResourceClaim) ([]Resource, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Resource
	found := false
	for _, c := range m.claims {
		if !slices.Contains(c.Pods[p.UID], ref.Name) {
			continue
		}
		found = true
		for driver, devices := range c.Devices {
			if devices == nil {
				return nil, fmt.Errorf("driver %s has not prepared claim %s/%s", driver, c.Namespace, c.Name)
			}
			for _, d := range devices {
				if d.isFor(ref.Request) {
					all = append(all, Resource{ClaimNamespace: c.Namespace, ClaimName: c.Name, Driver: driver, Pool: d.Pool, Device: d.Name, ShareID: d.ShareID, CDI: d.CDI})
				}
			}
		}
	}
	if !found && m.isWanted(p, ref.Name) {
		return nil, fmt.Errorf("resource claim %q of the pod is not prepared", ref.Name)
	}
	slices.SortStableFunc(all, func(a, b Resource) int {
		return slices.Compare([]string{a.Driver, a.Pool, a.Device}, []string{b.Driver, b.Pool, b.Device})
	})
	return all, nil
}

// isWanted reports whether a claim is to be prepared: some templates yield none.
func (m *Manager) isWanted(p *corev1.Pod, name string) bool {
	for i := range p.Spec.ResourceClaims {
		if p.Spec.ResourceClaims[i].Name == name {
			object, _, err := resourceclaim.Name(p, &p.Spec.ResourceClaims[i])
			return err != nil || object != nil
		}
	}
	return true
}

// isFor reports whether a device is for a request of its claim; the empty request stands
// for all. A device of one of several alternatives ("gpu/large") is for the request itself.
func (d device) isFor(request string) bool {
	return request == "" || len(d.Requests) == 0 || slices.ContainsFunc(d.Requests, func(r string) bool {
		return resourceclaim.BaseRequestRef(r) == request
	})
}
