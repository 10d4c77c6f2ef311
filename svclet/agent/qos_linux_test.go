package agent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/onsi/gomega"
	libcgroups "github.com/opencontainers/cgroups"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/cgroup"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/runtime/runtimetest"
)

func TestMain(m *testing.M) {
	// Directories of tests stand for cgroups.
	libcgroups.TestMode = true
	os.Exit(m.Run())
}

// hungCgroups are cgroups in a directory of the test, in place of the cpu hierarchy
// of cgroup v1. The CPU shares of burstable pods are a FIFO, so that each
// write to them hangs until release.
type hungCgroups struct {
	*cgroup.Manager
	shares  string        // the FIFO
	started chan struct{} // has an element for each write that begins
}

func newHungCgroups(t *testing.T) *hungCgroups {
	t.Helper()
	mount := t.TempDir()
	h := &hungCgroups{shares: filepath.Join(mount, "kubepods", "burstable", "cpu.shares"), started: make(chan struct{}, 1)}
	var err error
	if h.Manager, err = cgroup.New(cgroup.Options{PerQOS: true, Hierarchies: map[string]string{"cpu": mount}}); err != nil {
		t.Fatal(err)
	}
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(h.shares, 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

// UpdateClasses implements cgroups: it writes to the FIFO.
func (h *hungCgroups) UpdateClasses(active []*corev1.Pod) error {
	select {
	case h.started <- struct{}{}:
	default:
	}
	return h.Manager.UpdateClasses(active)
}

// Remove implements cgroups. A directory has no kernel that removes the files of a
// cgroup with it.
func (*hungCgroups) Remove(context.Context, types.UID) error { return nil }

// release puts a regular file in the FIFO's place, ends the write that hangs and
// returns what it writes.
func (h *hungCgroups) release() (string, error) {
	path := h.shares + ".fifo"
	if err := os.Rename(h.shares, path); err != nil {
		return "", err
	}
	if err := os.WriteFile(h.shares, []byte("2"), 0o600); err != nil {
		return "", err
	}
	fifo, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer fifo.Close()
	if err := fifo.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		return "", err
	}
	written := make([]byte, 100)
	n, err := fifo.Read(written)
	return string(written[:n]), err
}

// servedPods returns the names of the pods that GET /pods of the agent shows.
func (c *cluster) servedPods() []string {
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(c.Context(), http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/pods", c.agent.listeners.Port()), nil)
	c.Expect(err).NotTo(gomega.HaveOccurred())
	response, err := client.Do(request)
	c.Expect(err).NotTo(gomega.HaveOccurred())
	defer response.Body.Close()
	c.Expect(response.StatusCode).To(gomega.Equal(http.StatusOK))
	var list corev1.PodList
	c.Expect(json.NewDecoder(response.Body).Decode(&list)).To(gomega.Succeed())
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

func TestPodsStartEndAndAreReportedWhileQoSCgroupWritesHang(t *testing.T) {
	c := newCluster(t)
	hung := newHungCgroups(t)
	c.overrides.cgroups = func(cgroups) cgroups { return hung }
	adjust := c.adjust
	c.adjust = func(f *config.Flags, o *config.Configuration) {
		adjust(f, o)
		o.EnableServer, o.Address, o.Port, o.ReadOnlyPort, o.HealthzPort = ptr.To(true), "127.0.0.1", 0, 0, ptr.To[int32](0)
		o.Authentication.Anonymous.Enabled, o.Authentication.Webhook.Enabled = ptr.To(true), ptr.To(false)
		o.Authorization.Mode = "AlwaysAllow"
	}
	c.start()
	// The writes end before the agent is stopped, which waits for them.
	c.Cleanup(func() { c.Expect(hung.release()).To(gomega.Equal("2")) }) // shares of pods without requests
	c.create("a")
	c.Eventually(hung.started).Should(gomega.Receive())
	c.Eventually(c.runs("a")).Should(gomega.BeTrue())
	c.create("b")
	c.Eventually(c.runs("b")).Should(gomega.BeTrue())
	c.Expect(c.servedPods()).To(gomega.ConsistOf("a", "b"))
	c.runtime.End(c.runtime.Container("uid-a", "app"), runtimetest.End{Code: 3})
	c.Eventually(func() int32 {
		if all := c.api.Pod("default", "a").Status.ContainerStatuses; len(all) == 1 {
			return all[0].RestartCount
		}
		return 0
	}).Should(gomega.BeNumerically(">=", 1)) // An event of the runtime has been handled.
	c.delete("b")
	c.Eventually(c.gone("b")).Should(gomega.BeTrue())
	c.Eventually(c.servedPods).Should(gomega.ConsistOf("a"))
	c.Expect(c.agent.pods.Progress()).To(gomega.BeTemporally("~", c.agent.Clock.Now(), time.Minute))
	// The first write still hangs: no other has begun.
	c.Expect(hung.started).To(gomega.BeEmpty())
}
