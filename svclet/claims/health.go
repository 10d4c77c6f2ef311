package claims

import (
	"context"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1"
	healthalpha "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
)

const (
	// healthTimeout is how long what a driver says of a device holds, unless the driver names
	// another time: kubelet's.
	healthTimeout = 30 * time.Second
	// healthRetry is the pause before a driver is asked again that has ended its answer:
	// kubelet's.
	healthRetry = 5 * time.Second
)

// deviceHealth is what a driver says of a device.
type deviceHealth struct {
	status  corev1.ResourceHealthStatus
	message string
	// until is when it is unknown again.
	until time.Time
}

// deviceKey identifies a device of a driver.
type deviceKey struct{ pool, name string }

// healthClient returns the client of a driver that tells the health of devices (KEP-4680); nil
// for other drivers.
func healthClient(conn *grpc.ClientConn, versions []string) healthapi.DRAResourceHealthClient {
	switch {
	case slices.Contains(versions, healthapi.DRAResourceHealthService):
		return healthapi.NewDRAResourceHealthClient(conn)
	case slices.Contains(versions, healthalpha.DRAResourceHealthService):
		return healthapi.V1Alpha1ClientWrapper{Client: healthalpha.NewDRAResourceHealthClient(conn)}
	}
	return nil
}

// followHealth keeps the health of the devices of an instance of a driver until ctx is done.
func (m *Manager) followHealth(ctx context.Context, name string, d *driver, client healthapi.DRAResourceHealthClient) {
	for {
		err := m.receiveHealth(ctx, name, d, client)
		m.setHealth(name, d, nil)
		if ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).V(2).Info("Driver has ended its answer about the health of devices, will ask again", "driver", name, "after", healthRetry, "err", err)
		select {
		case <-ctx.Done():
			return
		case <-m.o.Clock.After(healthRetry):
		}
	}
}

// receiveHealth receives the health of devices until the driver ends its answer.
func (m *Manager) receiveHealth(ctx context.Context, name string, d *driver, client healthapi.DRAResourceHealthClient) error {
	stream, err := client.NodeWatchResources(ctx, &healthapi.NodeWatchResourcesRequest{})
	if err != nil {
		return err
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		m.setHealth(name, d, response.GetDevices())
	}
}

// setHealth records what an instance of a driver says of its devices. What it has said of others
// holds until its time is over; with nil it says nothing of any.
func (m *Manager) setHealth(name string, d *driver, devices []*healthapi.DeviceHealth) {
	m.mu.Lock()
	before := d.health
	d.health = map[deviceKey]deviceHealth{}
	now := m.o.Clock.Now()
	for key, old := range before {
		if devices != nil && now.Before(old.until) {
			d.health[key] = old
		}
	}
	for _, said := range devices {
		d.health[deviceKey{said.GetDevice().GetPoolName(), said.GetDevice().GetDeviceName()}] = newHealth(said, now)
	}
	changed := m.usersOf(name, func(key deviceKey) bool {
		old, current := before[key], d.health[key]
		return old.status != current.status || old.message != current.message
	})
	m.setHealthTimer(name, d)
	m.mu.Unlock()
	m.notify(changed)
}

// newHealth returns what a driver says of a device now.
func newHealth(said *healthapi.DeviceHealth, now time.Time) deviceHealth {
	h := deviceHealth{status: corev1.ResourceHealthStatusUnknown, message: said.GetMessage(), until: now.Add(healthTimeout)}
	switch said.GetHealth() {
	case healthapi.HealthStatus_HEALTHY:
		h.status = corev1.ResourceHealthStatusHealthy
	case healthapi.HealthStatus_UNHEALTHY:
		h.status = corev1.ResourceHealthStatusUnhealthy
	}
	if seconds := said.GetHealthCheckTimeoutSeconds(); seconds > 0 {
		h.until = now.Add(time.Duration(seconds) * time.Second)
	}
	if len(h.message) > corev1.ResourceHealthMessageMaxLength {
		cut := corev1.ResourceHealthMessageMaxLength - len("...")
		for cut > 0 && !utf8.RuneStart(h.message[cut]) {
			cut--
		}
		h.message = h.message[:cut] + "..."
	}
	return h
}

// setHealthTimer makes the pods be told when the first thing that a driver has said does not hold
// any more. The caller holds mu.
func (m *Manager) setHealthTimer(name string, d *driver) {
	if d.healthTimer != nil {
		d.healthTimer.Stop()
		d.healthTimer = nil
	}
	var first time.Time
	for _, h := range d.health {
		if first.IsZero() || h.until.Before(first) {
			first = h.until
		}
	}
	if !first.IsZero() {
		// The clock may hold its lock during the call.
		d.healthTimer = m.o.Clock.AfterFunc(first.Sub(m.o.Clock.Now()), func() { go m.expireHealth(name, d) })
	}
}

// expireHealth forgets what does not hold any more.
func (m *Manager) expireHealth(name string, d *driver) {
	m.mu.Lock()
	now, expired := m.o.Clock.Now(), map[deviceKey]bool{}
	for key, h := range d.health {
		if !now.Before(h.until) {
			expired[key] = true
			delete(d.health, key)
		}
	}
	changed := m.usersOf(name, func(key deviceKey) bool { return expired[key] })
	m.setHealthTimer(name, d)
	m.mu.Unlock()
	m.notify(changed)
}

// usersOf returns the pods with certain devices of a driver. The caller holds mu.
func (m *Manager) usersOf(driver string, has func(deviceKey) bool) []types.UID {
	var all []types.UID
	for _, c := range m.claims {
		if slices.ContainsFunc(c.Devices[driver], func(d device) bool { return has(deviceKey{d.Pool, d.Name}) }) {
			for uid := range c.Pods {
				all = append(all, uid)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (m *Manager) notify(pods []types.UID) {
	if len(pods) > 0 && m.o.HealthChanged != nil {
		m.o.HealthChanged(pods)
	}
}

// healthOf returns what the drivers' instances say of a device, the last one first.
func (m *Manager) healthOf(name string, key deviceKey) deviceHealth {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.o.Clock.Now()
	for _, d := range slices.Backward(m.drivers[name]) {
		if h, said := d.health[key]; said && now.Before(h.until) {
			return h
		}
	}
	return deviceHealth{status: corev1.ResourceHealthStatusUnknown}
}

// Health returns the health of the devices of a container's claims, as the pod's status shows it
// (KEP-4680). A device is named by its first CDI device, if it has one.
func (m *Manager) Health(p *corev1.Pod, c *corev1.Container) []corev1.ResourceStatus {
	var all []corev1.ResourceStatus
	for _, ref := range c.Resources.Claims {
		found, err := m.prepared(p, ref)
		if err != nil {
			continue // It has none yet.
		}
		s := corev1.ResourceStatus{Name: corev1.ResourceName("claim:" + ref.Name)}
		if ref.Request != "" {
			s.Name += corev1.ResourceName("/" + ref.Request)
		}
		for _, r := range found {
			id := corev1.ResourceID(fmt.Sprintf("%s/%s/%s", r.Driver, r.Pool, r.Device))
			if len(r.CDI) > 0 {
				id = corev1.ResourceID(r.CDI[0])
			}
			if slices.ContainsFunc(s.Resources, func(h corev1.ResourceHealth) bool { return h.ResourceID == id }) {
				continue
			}
			said := m.healthOf(r.Driver, deviceKey{r.Pool, r.Device})
			h := corev1.ResourceHealth{ResourceID: id, Health: said.status}
			if said.message != "" {
				h.Message = &said.message
			}
			s.Resources = append(s.Resources, h)
		}
		if len(s.Resources) > 0 {
			all = append(all, s)
		}
	}
	return all
}
