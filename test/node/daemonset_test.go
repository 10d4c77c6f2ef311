package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/apis/podspec"
)

// daemon is a daemon set whose pods print the version of their template.
const daemon = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: daemon}
spec:
  selector: {matchLabels: {app: daemon}}
  template:
    metadata: {labels: {app: daemon}}
    spec:
      terminationGracePeriodSeconds: 30
      containers:
      - name: main
        image: localhost/svc/server:1
        env: [{name: VERSION, value: "1"}]
        readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1}
`

// The moments of a pod that a rollout is about, as words of sequences.
const (
	created = "created"
	ready   = "ready"
	ends    = "ends"
	ended   = "ended"
)

// replaced watches a daemon set's pods from now on. The returned function waits until a
// rollout to a version is complete, and returns the moments of the pods in their order, such
// as "1 ends": that of a pod with version 1.
func replaced(ctx context.Context, s space) func(version string) []string {
	GinkgoHelper()
	w, err := client.Watch(ctx, &corev1.PodList{}, ctrlclient.InNamespace(s.name), ctrlclient.MatchingLabels{"app": "daemon"})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(w.Stop)
	return func(version string) []string {
		GinkgoHelper()
		s.run(ctx, "rollout", "status", "daemonset/daemon", "--timeout=3m")
		var sequence []string
		Eventually(func() []string {
			for {
				select {
				case e, open := <-w.ResultChan():
					if !open {
						return append(sequence, "the watch has ended")
					}
					sequence = appendMoment(sequence, e)
				default:
					return sequence
				}
			}
		}).Should(And(ContainElement(version+" "+ready), ContainElement(HaveSuffix(ended))))
		return sequence
	}
}

// appendMoment appends the moment that an event shows, unless an earlier one has shown it.
func appendMoment(sequence []string, e watch.Event) []string {
	pod, isPod := e.Object.(*corev1.Pod)
	if !isPod {
		return append(sequence, fmt.Sprintf("%s %v", e.Type, e.Object))
	}
	version := pod.Spec.Containers[0].Env[0].Value
	moments := []string{version + " " + created}
	if c := podspec.Condition(&pod.Status, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
		moments = append(moments, version+" "+ready)
	}
	if pod.DeletionTimestamp != nil {
		moments = append(moments, version+" "+ends)
	}
	// The phase says that the containers have ended; the object may be there for a moment.
	if podspec.IsTerminal(pod.Status.Phase) || e.Type == watch.Deleted {
		moments = append(moments, version+" "+ended)
	}
	for _, m := range moments {
		if !slices.Contains(sequence, m) {
			sequence = append(sequence, m)
		}
	}
	return sequence
}

// version returns the version of the only pod of the daemon set.
func version(ctx context.Context, s space) string {
	GinkgoHelper()
	return s.run(ctx, "get", "pods", "--selector=app=daemon", "--output=jsonpath={.items[*].spec.containers[0].env[0].value}")
}

var _ = Describe("a daemon set", func() {
	var s space
	BeforeEach(func(ctx SpecContext) {
		s = newSpace(ctx)
		s.apply(ctx, daemon)
		s.run(ctx, "rollout", "status", "daemonset/daemon", "--timeout=3m")
		Expect(version(ctx, s)).To(Equal("1"))
	})

	It("starts a pod of a new template after the old one has ended, and with surge ends the old one after the new one is ready", func(ctx SpecContext) {
		roll := replaced(ctx, s)
		s.run(ctx, "set", "env", "daemonset/daemon", "VERSION=2")
		Expect(roll("2")).To(Equal([]string{"1 created", "1 ready", "1 ends", "1 ended", "2 created", "2 ready"}))

		s.run(ctx, "patch", "daemonset/daemon", `--patch={"spec":{"updateStrategy":{"rollingUpdate":{"maxSurge":1,"maxUnavailable":0}}}}`)
		roll = replaced(ctx, s)
		s.run(ctx, "set", "env", "daemonset/daemon", "VERSION=3")
		Expect(roll("3")).To(Equal([]string{"2 created", "2 ready", "3 created", "3 ready", "2 ends", "2 ended"}))
		Expect(version(ctx, s)).To(Equal("3"))
	})

	It("waits on delete until its pod is deleted", func(ctx SpecContext) {
		s.run(ctx, "patch", "daemonset/daemon", `--patch={"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`)
		s.run(ctx, "set", "env", "daemonset/daemon", "VERSION=2")
		observed := "--output=jsonpath={.metadata.generation} {.status.observedGeneration}"
		Eventually(func() []string {
			return strings.Fields(s.run(ctx, "get", "daemonset/daemon", observed))
		}).Should(HaveExactElements("3", "3"))
		Expect(version(ctx, s)).To(Equal("1"))
		s.run(ctx, "delete", "pod", "--selector=app=daemon")
		Eventually(func() string { return version(ctx, s) }).Should(Equal("2"))
	})

	It("goes back to an earlier revision, which becomes the newest of its history", func(ctx SpecContext) {
		for _, next := range []string{"2", "3"} {
			s.run(ctx, "set", "env", "daemonset/daemon", "VERSION="+next)
			s.run(ctx, "rollout", "status", "daemonset/daemon", "--timeout=3m")
		}
		revisions := func() []string {
			lines := strings.Split(strings.TrimSpace(s.run(ctx, "rollout", "history", "daemonset/daemon")), "\n")
			var numbers []string
			for _, line := range lines[2:] {
				numbers = append(numbers, strings.Fields(line)[0])
			}
			return numbers
		}
		Expect(revisions()).To(Equal([]string{"1", "2", "3"}))
		Expect(s.run(ctx, "rollout", "history", "daemonset/daemon", "--revision=2")).To(MatchRegexp(`VERSION:\s+2\n`))
		roll := replaced(ctx, s)
		s.run(ctx, "rollout", "undo", "daemonset/daemon", "--to-revision=1")
		Expect(roll("1")).To(Equal([]string{"3 created", "3 ready", "3 ends", "3 ended", "1 created", "1 ready"}))
		Expect(revisions()).To(Equal([]string{"2", "3", "4"}))
		s.run(ctx, "rollout", "undo", "daemonset/daemon")
		s.run(ctx, "rollout", "status", "daemonset/daemon", "--timeout=3m")
		Expect(version(ctx, s)).To(Equal("3"))
		Expect(revisions()).To(Equal([]string{"2", "4", "5"}))
	})
})
