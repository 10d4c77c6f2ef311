package executor

import (
	"context"
	"errors"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/pod"
)

// network records for which pods it was asked.
type network struct {
	protected [][]string
	released  []types.UID
	err       error
}

func (n *network) Protect(_ context.Context, _ *corev1.Pod, addresses []string) error {
	n.protected = append(n.protected, addresses)
	return n.err
}

func (n *network) Release(uid types.UID) { n.released = append(n.released, uid) }

func TestNoContainerStartsBeforeTheRulesOfItsPodAreInPlace(t *testing.T) {
	r := newFixture(t)
	n := &network{err: errors.New("not yet")}
	r.o.Network = n
	start := r.startOf("app")
	result := r.perform(t.Context(), start)
	r.Expect(result).To(gomega.Equal(pod.Result{Reason: "NetworkPolicyNotReady", Message: "not yet"}))
	r.Expect(r.observed().Containers).To(gomega.BeEmpty())
	n.err = nil
	r.succeed(start)
	r.Expect(n.protected).To(gomega.Equal([][]string{r.observed().Sandboxes[0].IPs, r.observed().Sandboxes[0].IPs}))

	// The sandbox has its rules, which a container that starts again does not wait for.
	start.Attempt++
	r.succeed(start)
	r.Expect(n.protected).To(gomega.HaveLen(2))
	r.succeed(pod.Operation{Kind: pod.TearDown})
	r.Expect(n.released).To(gomega.ConsistOf(types.UID("u")))
}

func TestAPodHoldsItsAddressesUntilItsLastSandboxHasStopped(t *testing.T) {
	r := newFixture(t)
	n := &network{}
	r.o.Network = n
	start := r.startOf("app") // in the first sandbox
	r.succeed(start)
	r.succeed(pod.Operation{Kind: pod.CreateSandbox, Attempt: 1})
	both := r.observed()
	r.Expect(both.Sandboxes).To(gomega.HaveLen(2))
	stop := func(id string) {
		r.Expect(r.Perform(t.Context(), r.pod, both, pod.Operation{Kind: pod.StopSandbox, ID: id}, nil)).To(gomega.Equal(pod.Result{}))
	}
	stop(start.SandboxID)
	r.Expect(n.released).To(gomega.BeEmpty(), "the newer sandbox is ready")
	stop(both.Sandboxes[0].ID) // of an observation before the other one has stopped
	r.Expect(n.released).To(gomega.Equal([]types.UID{"u"}))

	// A sandbox that replaces it has addresses before the pod's first container starts in it.
	r.succeed(pod.Operation{Kind: pod.CreateSandbox, Attempt: 2})
	start.SandboxID, start.Attempt = r.observed().Sandboxes[0].ID, 1
	r.succeed(start)
	r.Expect(n.protected).To(gomega.HaveLen(2))
	r.Expect(n.released).To(gomega.HaveLen(1))
	r.succeed(pod.Operation{Kind: pod.StopSandbox, ID: start.SandboxID})
	r.Expect(n.released).To(gomega.HaveLen(2))
}
