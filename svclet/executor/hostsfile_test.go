package executor

import (
	"os"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/svclet/pod"
)

func TestTheHostsFileOfRunningContainersIsWrittenOnlyIfItChanges(t *testing.T) {
	r := newFixture(t, func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "second", Image: "app:1", ImagePullPolicy: corev1.PullIfNotPresent})
	})
	r.running()
	file, old := r.o.Volumes.HostsFile(r.pod.UID), time.Unix(1_700_000_000, 0)
	content, err := os.ReadFile(file)
	r.Expect(err).NotTo(gomega.HaveOccurred())
	r.Expect(os.Chtimes(file, old, old)).To(gomega.Succeed())
	start := pod.Operation{Kind: pod.StartContainer, Name: "second", SandboxID: r.observed().Sandboxes[0].ID}
	r.succeed(start)
	info, err := os.Stat(file)
	r.Expect(err).NotTo(gomega.HaveOccurred())
	r.Expect(info.ModTime()).To(gomega.BeTemporally("==", old))

	r.Expect(os.WriteFile(file, []byte("changed"), 0o600)).To(gomega.Succeed())
	start.Attempt = 1
	r.succeed(start)
	r.Expect(os.ReadFile(file)).To(gomega.Equal(content))
}
