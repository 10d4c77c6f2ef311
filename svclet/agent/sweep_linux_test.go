package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/runtime/runtimetest"
)

// stubborn is a pod's cgroup that cannot be removed at first.
type stubborn struct {
	cgroups
	mu    sync.Mutex
	asked int
}

func (s *stubborn) Pods() ([]types.UID, error) { return []types.UID{"left"}, nil }

func (s *stubborn) Remove(_ context.Context, uid types.UID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked++; uid == "left" && s.asked == 1 {
		return errors.New("something still runs in it")
	}
	return nil
}

func (s *stubborn) times() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func TestLeftoversOfAPodAreRemovedWithRetries(t *testing.T) {
	m := newMachine(t, runtimetest.Options{})
	groups := &stubborn{}
	m.overrides.cgroups = func(real cgroups) cgroups {
		groups.cgroups = real
		return groups
	}
	left := []string{filepath.Join(m.root(), "pods", "left", "volumes"), filepath.Join(m.dir, "logs", "ns_p_left", "app")}
	for _, dir := range left {
		m.Expect(os.MkdirAll(dir, 0o755)).To(gomega.Succeed())
	}
	m.start()
	for _, dir := range left {
		m.Eventually(filepath.Dir(dir)).ShouldNot(gomega.BeADirectory())
	}
	m.Eventually(groups.times).Should(gomega.Equal(2))
	m.Eventually(func() bool { return m.agent.pods.IsKnown("left") }).Should(gomega.BeFalse())
}
