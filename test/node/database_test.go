package node

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/test/launch"
)

// The spec kills processes, so it uses its own: an API server, a controller manager, a
// containerd and an agent.
var _ = Describe("a stateful set of three databases", func() {
	It("loses no record while its pods, the agent, the manager and the server are killed", func(ctx SpecContext) {
		d := newDatabases(ctx)
		s := newSpace(ctx)
		s.apply(ctx, databases)
		d.awaitReady(ctx, s)
		volumes := s.run(ctx, "get", "pvc", "-o", "jsonpath={range .items[*]}{.metadata.name}={.spec.volumeName} {end}")
		Expect(strings.Fields(volumes)).To(HaveLen(3))
		stop := d.write(ctx, s)

		By("killing pods")
		s.run(ctx, "delete", "pod", "db-0", "--grace-period=0", "--force")
		d.crash(ctx, "db-1")
		s.run(ctx, "delete", "pod", "db-2", "--wait=false")
		d.awaitReady(ctx, s)
		d.awaitWrites(ctx)

		By("killing the agent, while a pod ends and another is deleted")
		d.agent.Kill()
		d.crash(ctx, "db-2")
		s.run(ctx, "delete", "pod", "db-1", "--wait=false")
		d.awaitWrites(ctx, "db-0")
		Expect(d.agent.Start()).To(Succeed())
		d.awaitReady(ctx, s)

		By("killing the manager, while a pod is deleted")
		d.manager.Kill()
		s.run(ctx, "delete", "pod", "db-0")
		d.awaitWrites(ctx, "db-1", "db-2")
		d.manage(ctx)
		d.awaitReady(ctx, s)

		By("killing the server, while a pod ends")
		d.server.Kill()
		d.crash(ctx, "db-1")
		d.awaitWrites(ctx, "db-0", "db-2")
		d.serve(ctx)
		d.awaitReady(ctx, s)

		By("killing all of them while a new revision is rolled out")
		s.run(ctx, "set", "env", "statefulset", "db", "ROUND=2")
		d.manager.Kill()
		d.server.Kill()
		d.agent.Kill()
		d.crash(ctx, "db-0")
		d.serve(ctx)
		d.manage(ctx)
		Expect(d.agent.Start()).To(Succeed())
		s.run(ctx, "rollout", "status", "statefulset", "db")
		d.awaitReady(ctx, s)
		d.awaitWrites(ctx)
		stop()

		By("scaling down and up")
		s.run(ctx, "scale", "statefulset", "db", "--replicas=0")
		Eventually(func() string { return s.run(ctx, "get", "pods", "-o", "name") }).Should(BeEmpty())
		before := d.files(ctx, s) // until now, a request whose client had stopped could write
		s.run(ctx, "scale", "statefulset", "db", "--replicas=3")
		d.awaitReady(ctx, s)
		Expect(d.files(ctx, s)).To(Equal(before))
		Expect(s.run(ctx, "get", "pvc", "-o", "jsonpath={range .items[*]}{.metadata.name}={.spec.volumeName} {end}")).To(Equal(volumes))
		d.check(before)
		s.run(ctx, "delete", "statefulset", "db")
		s.run(ctx, "delete", "pvc", "--all")
		Eventually(func() ([]string, error) { return filepath.Glob(filepath.Join(d.volumes(), "*")) }).Should(BeEmpty())
	})
})

const databases = `
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {clusterIP: None, selector: {app: db}, ports: [{port: 8080}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 3
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: main
        image: localhost/svc/server:1
        args: [--records=/data/records]
        readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1}
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Mi}}}
`

// databaseNames are the pods of the stateful set.
var databaseNames = []string{"db-0", "db-1", "db-2"}

// runningDatabases are the processes of the spec, and what its clients have written.
type runningDatabases struct {
	server  *launch.Server
	manager *launch.Process
	machine *launch.Machine
	agent   *launch.Agent
	port    string
	client  ctrlclient.Client // of the writers, who do not use the suite's helpers

	mu sync.Mutex
	// address is the last known one of each pod, and confirmed the records that it has
	// confirmed.
	address   map[string]string
	confirmed map[string][]string
}

// newDatabases starts the processes. What the suite's helpers use is theirs until the end
// of the spec.
func newDatabases(ctx SpecContext) *runningDatabases {
	GinkgoHelper()
	suiteClient, suiteKubectl := client, kubectl
	DeferCleanup(func() { client, kubectl = suiteClient, suiteKubectl })
	d := &runningDatabases{machine: newMachine(ctx), port: freePort(), address: map[string]string{}, confirmed: map[string][]string{}}
	DeferCleanup(func() {
		for _, p := range []*launch.Process{d.agent.Process, d.manager, d.server.Process} {
			if p == nil {
				continue
			}
			if CurrentSpecReport().Failed() {
				AddReportEntry("a process printed", lastLines(p.Output()))
			}
			p.Kill()
		}
	})
	program, err := launch.Svclet.Program()
	Expect(err).NotTo(HaveOccurred())
	d.agent, err = d.machine.NewAgent(launch.Svclet, program, "databases")
	Expect(err).NotTo(HaveOccurred())
	d.serve(ctx)
	d.client, err = clientOf(d.server.Config)
	Expect(err).NotTo(HaveOccurred())
	d.manage(ctx)
	cluster, err := d.server.Cluster()
	Expect(err).NotTo(HaveOccurred())
	Expect(d.agent.Configure(cluster)).To(Succeed())
	Expect(d.agent.Start()).To(Succeed())
	return d
}

// serve starts the API server, again.
func (d *runningDatabases) serve(ctx context.Context) {
	GinkgoHelper()
	var err error
	d.server, err = launch.UpAt(ctx, filepath.Join(d.machine.Dir, "server"), d.port, "--controllers=")
	Expect(err).NotTo(HaveOccurred())
	client, err = clientOf(d.server.Config)
	Expect(err).NotTo(HaveOccurred())
	kubectl = launch.Kubectl{Kubeconfig: d.server.Kubeconfig, Home: d.machine.Dir}
}

// manage starts the manager, again. The lease of a killed one ends after three seconds.
func (d *runningDatabases) manage(ctx context.Context) {
	GinkgoHelper()
	var err error
	d.manager, err = d.server.Manager(ctx, "--local-path-class=local-path",
		"--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=200ms")
	Expect(err).NotTo(HaveOccurred())
}

// volumes is the directory of the node's volumes.
func (d *runningDatabases) volumes() string {
	return filepath.Join(d.machine.Dir, "agent", "local-volumes")
}

// awaitReady waits until the whole stateful set is ready and at its newest revision, with
// the present addresses of its pods.
func (d *runningDatabases) awaitReady(ctx context.Context, s space) {
	GinkgoHelper()
	Eventually(func() (*appsv1.StatefulSet, error) {
		set := &appsv1.StatefulSet{}
		return set, client.Get(ctx, ctrlclient.ObjectKey{Namespace: s.name, Name: "db"}, set)
	}).Should(And(HaveField("Status.ReadyReplicas", int32(3)), HaveField("Status.Replicas", int32(3))))
	for _, name := range databaseNames {
		p := s.await(ctx, name, And(beReady(), HaveField("DeletionTimestamp", BeNil()), HaveField("Status.PodIP", Not(BeEmpty()))))
		d.moved(name, p)
	}
}

// crash ends the container of a pod, which the agent starts again.
func (d *runningDatabases) crash(ctx SpecContext, name string) {
	_ = tryPost(ctx, "http://"+d.addressOf(name)+":8080/exit?code=1") // a server that exits may not answer
}

// moved records the address of a pod.
func (d *runningDatabases) moved(name string, pod *corev1.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.address[name] = pod.Status.PodIP
}

func (d *runningDatabases) addressOf(name string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.address[name]
}

// write lets a client for each database write one record after another, until the
// returned function is called.
func (d *runningDatabases) write(ctx context.Context, s space) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var writing sync.WaitGroup
	for _, name := range databaseNames {
		writing.Go(func() {
			one := &http.Client{Timeout: time.Second}
			for number := 0; ctx.Err() == nil; number++ {
				record := fmt.Sprintf("%s/%s/%06d/%s", s.name, name, number, strings.Repeat("x", number%200))
				if d.append(ctx, one, name, record) {
					d.mu.Lock()
					d.confirmed[name] = append(d.confirmed[name], record)
					d.mu.Unlock()
					continue
				}
				// It is away: its address may be another one now.
				one.CloseIdleConnections()
				pod := &corev1.Pod{}
				if err := d.client.Get(ctx, ctrlclient.ObjectKey{Namespace: s.name, Name: name}, pod); err == nil && pod.Status.PodIP != "" {
					d.moved(name, pod)
				}
				idle(ctx)
			}
		})
	}
	return func() { cancel(); writing.Wait() }
}

// idle keeps a writer from asking a database that is away all the time.
func idle(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Millisecond):
	}
}

// append reports whether the database has confirmed a record.
func (d *runningDatabases) append(ctx context.Context, one *http.Client, name, record string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+d.addressOf(name)+":8080/records?record="+record, nil)
	if err != nil {
		return false
	}
	answer, err := one.Do(request)
	if err != nil {
		return false
	}
	return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
}

// awaitWrites waits until databases, all if none is named, have confirmed more records.
func (d *runningDatabases) awaitWrites(ctx context.Context, names ...string) {
	GinkgoHelper()
	if len(names) == 0 {
		names = databaseNames
	}
	count := func(name string) func() int {
		return func() int { d.mu.Lock(); defer d.mu.Unlock(); return len(d.confirmed[name]) }
	}
	for _, name := range names {
		before := count(name)()
		Eventually(count(name)).WithContext(ctx).Should(BeNumerically(">", before+5), name)
	}
}

// files returns the content of each database's volume.
func (d *runningDatabases) files(ctx context.Context, s space) map[string]string {
	GinkgoHelper()
	content := map[string]string{}
	for _, name := range databaseNames {
		var claim corev1.PersistentVolumeClaim
		Expect(client.Get(ctx, ctrlclient.ObjectKey{Namespace: s.name, Name: "data-" + name}, &claim)).To(Succeed())
		file, err := os.ReadFile(filepath.Join(d.volumes(), claim.Spec.VolumeName, "records"))
		Expect(err).NotTo(HaveOccurred())
		content[name] = string(file)
	}
	return content
}

// check compares the volumes with what the databases have confirmed: each record is there,
// once, in order, and no record of another database is. One that was not confirmed in time
// may be there too, also after later ones: its request may have waited for the processor.
func (d *runningDatabases) check(files map[string]string) {
	GinkgoHelper()
	for name, content := range files {
		var stored []string
		for line := range strings.Lines(content) {
			_, record, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			Expect(record).To(ContainSubstring("/"+name+"/"), "a record of another database")
			stored = append(stored, record)
		}
		Expect(slices.Compact(slices.Sorted(slices.Values(stored)))).To(HaveLen(len(stored)), "%s has a record twice", name)
		at := 0
		for _, record := range d.confirmed[name] {
			for at < len(stored) && stored[at] != record {
				at++ // it was not confirmed
			}
			Expect(at).To(BeNumerically("<", len(stored)), "%s has lost %s, or has it before an earlier one", name, record)
		}
		AddReportEntry(fmt.Sprintf("%s: %d records, %d of them confirmed", name, len(stored), len(d.confirmed[name])))
	}
}
