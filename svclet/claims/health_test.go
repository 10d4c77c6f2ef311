package claims

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1"
	healthalpha "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"svc.dev/svc/svclet/plugins"
)

// fakeHealth tells the health of devices that a test sets.
type fakeHealth struct {
	healthapi.UnimplementedDRAResourceHealthServer
	said chan []*healthapi.DeviceHealth
}

// NodeWatchResources implements the driver. Nil ends the answer.
func (h *fakeHealth) NodeWatchResources(_ *healthapi.NodeWatchResourcesRequest, stream healthapi.DRAResourceHealth_NodeWatchResourcesServer) error {
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case devices := <-h.said:
			if devices == nil {
				return nil
			}
			if err := stream.Send(&healthapi.NodeWatchResourcesResponse{Devices: devices}); err != nil {
				return err
			}
		}
	}
}

// registerWithHealth registers a driver that tells the health of its devices by a version of that
// API.
func (f *fixture) registerWithHealth(version string) *fakeHealth {
	f.t.Helper()
	dir, err := os.MkdirTemp("", "dra") // the path of a socket is short
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.t.Cleanup(func() { os.RemoveAll(dir) })
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	f.Expect(err).NotTo(gomega.HaveOccurred())
	h, server := &fakeHealth{said: make(chan []*healthapi.DeviceHealth)}, grpc.NewServer()
	draapi.RegisterDRAPluginServer(server, &fakeDriver{})
	if version == healthapi.DRAResourceHealthService {
		healthapi.RegisterDRAResourceHealthServer(server, h)
	} else {
		healthalpha.RegisterDRAResourceHealthServer(server, healthapi.V1ServerWrapper{Server: h})
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	f.t.Cleanup(func() { server.Stop(); serving.Wait() })
	f.Expect(f.Register(f.t.Context(), plugins.Plugin{
		Name: gpus, Endpoint: listener.Addr().String(), Versions: []string{draapi.DRAPluginService, version},
	})).To(gomega.Succeed())
	return h
}

// says is what a driver says of a device.
func says(device string, health healthapi.HealthStatus, message string, seconds int64) *healthapi.DeviceHealth {
	return &healthapi.DeviceHealth{
		Device: &healthapi.DeviceIdentifier{PoolName: "pool", DeviceName: device}, Health: health, Message: message, HealthCheckTimeoutSeconds: seconds,
	}
}

// shown returns the health of a container's devices, as "claim:my-a gpu=0 Healthy".
func (f *fixture) shown(p *corev1.Pod, c *corev1.Container) string {
	var all []string
	for _, s := range f.Health(p, c) {
		text := string(s.Name)
		for _, r := range s.Resources {
			text += " " + strings.TrimPrefix(string(r.ResourceID), gpus+"/") + " " + string(r.Health)
			if r.Message != nil {
				text += " (" + *r.Message + ")"
			}
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

func TestTheHealthOfTheDevicesOfClaimsIsShown(t *testing.T) {
	for _, version := range []string{healthapi.DRAResourceHealthService, healthalpha.DRAResourceHealthService} {
		t.Run(version, func(t *testing.T) {
			f, clock, changed := newFixture(t), clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0)), make(chan []types.UID, 10)
			f.o.Clock, f.o.HealthChanged = clock, func(pods []types.UID) { changed <- pods }
			h := f.registerWithHealth(version)
			p, c := podOf("p", "a"), containerOf("my-a", "my-a small")
			f.claim("a", p)
			f.Expect(f.shown(p, c)).To(gomega.BeEmpty(), "nothing is prepared yet")
			f.Expect(f.Prepare(t.Context(), p)).To(gomega.Succeed())
			f.Expect(f.shown(p, c)).To(gomega.Equal("claim:my-a gpu=0 Unknown gpu=1 Unknown; claim:my-a/small gpu=1 Unknown"))

			h.said <- []*healthapi.DeviceHealth{says("gpu-0", healthapi.HealthStatus_HEALTHY, "", 0), says("gpu-1", healthapi.HealthStatus_UNHEALTHY, "too hot", 60), says("gpu-2", healthapi.HealthStatus_HEALTHY, "", 0)}
			f.Expect(<-changed).To(gomega.Equal([]types.UID{p.UID}))
			f.Expect(f.shown(p, c)).To(gomega.Equal("claim:my-a gpu=0 Healthy gpu=1 Unhealthy (too hot); claim:my-a/small gpu=1 Unhealthy (too hot)"))

			clock.Step(healthTimeout)
			f.Expect(<-changed).To(gomega.Equal([]types.UID{p.UID}), "what is said of gpu-0 does not hold any more")
			f.Expect(f.shown(p, c)).To(gomega.HavePrefix("claim:my-a gpu=0 Unknown gpu=1 Unhealthy (too hot)"))

			h.said <- []*healthapi.DeviceHealth{says("gpu-0", healthapi.HealthStatus_HEALTHY, "", -1)}
			f.Expect(<-changed).To(gomega.Equal([]types.UID{p.UID}))
			f.Expect(f.shown(p, c)).To(gomega.HavePrefix("claim:my-a gpu=0 Healthy gpu=1 Unhealthy (too hot)"), "a device that is left out is as it was, for its time")

			h.said <- nil
			f.Expect(<-changed).To(gomega.Equal([]types.UID{p.UID}))
			f.Expect(f.shown(p, c)).To(gomega.HavePrefix("claim:my-a gpu=0 Unknown gpu=1 Unknown"), "the driver has ended its answer")
			f.Eventually(clock.HasWaiters).WithTimeout(time.Minute).Should(gomega.BeTrue())
			clock.Step(healthRetry)
			h.said <- []*healthapi.DeviceHealth{says("gpu-1", healthapi.HealthStatus_HEALTHY, "", 0)}
			f.Expect(<-changed).To(gomega.Equal([]types.UID{p.UID}))
			f.Expect(f.shown(p, c)).To(gomega.HavePrefix("claim:my-a gpu=0 Unknown gpu=1 Healthy"))
		})
	}
}

func TestLongMessagesOfDevicesAreCut(t *testing.T) {
	h := newHealth(says("gpu-0", healthapi.HealthStatus_UNHEALTHY, strings.Repeat("ä", corev1.ResourceHealthMessageMaxLength), 0), time.Time{})
	if want := strings.Repeat("ä", 510) + "..."; h.message != want {
		t.Errorf("%d bytes: %s", len(h.message), h.message)
	}
}
