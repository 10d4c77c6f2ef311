package node

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/test/launch"
)

// runtimeIsAtLeast reports whether the containerd of a node is of a version or a newer one.
func runtimeIsAtLeast(ctx context.Context, node, version string) bool {
	GinkgoHelper()
	var n corev1.Node
	Expect(client.Get(ctx, ctrlclient.ObjectKey{Name: node}, &n)).To(Succeed())
	_, is, _ := strings.Cut(n.Status.NodeInfo.ContainerRuntimeVersion, "://")
	parsed, err := utilversion.ParseGeneric(is)
	Expect(err).NotTo(HaveOccurred())
	return parsed.AtLeast(utilversion.MustParseGeneric(version))
}

// Release 1.28, which is the suite's, does not have the field, so the spec uses its own API server and agent.
var _ = Describe("a volume of type image", func() {
	It("shows the files of an image and cannot be written to, or the pod says which runtime can", func(ctx SpecContext) {
		const name = "images"
		suiteClient, suiteKubectl := client, kubectl
		DeferCleanup(func() { client, kubectl = suiteClient, suiteKubectl })
		machine := newMachine(ctx)
		server, err := launch.Up(ctx, filepath.Join(machine.Dir, "server"), "--release=1.36")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(server.Kill)
		client, err = clientOf(server.Config)
		Expect(err).NotTo(HaveOccurred())
		kubectl = launch.Kubectl{Kubeconfig: server.Kubeconfig, Home: machine.Dir}
		program, err := launch.Svclet.Program()
		Expect(err).NotTo(HaveOccurred())
		agent, err := machine.NewAgent(launch.Svclet, program, name)
		Expect(err).NotTo(HaveOccurred())
		cluster, err := server.Cluster()
		Expect(err).NotTo(HaveOccurred())
		Expect(agent.Configure(cluster)).To(Succeed())
		Expect(agent.Start()).To(Succeed())
		DeferCleanup(func() { agent.Kill() })

		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: mounts}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: programs, image: {reference: "localhost/svc/busybox:1"}}, {name: server, image: {reference: "localhost/svc/server:1", pullPolicy: Never}}]
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sh, -c, "trap 'exit 3' TERM; sleep 1000 & wait"]
    volumeMounts: [{name: programs, mountPath: /programs}, {name: programs, mountPath: /part, subPath: bin}, {name: server, mountPath: /web}]
  - name: second
    image: localhost/svc/busybox:1
    command: [sleep, "1000"]
    volumeMounts: [{name: server, mountPath: /web}]
`)
		s.await(ctx, "mounts", HaveField("Spec.NodeName", name))
		if !runtimeIsAtLeast(ctx, name, "2.1.0") {
			Eventually(s.events(ctx, "mounts")).Should(ContainElement(MatchRegexp(
				`(?m)^FailedMount: .*volumes of type image need a container runtime that mounts images: containerd [0-9.]+ does not, 2\.1\.0 and newer ones do$`)))
			return
		}
		s.await(ctx, "mounts", beReady())
		Expect(s.exec(ctx, "mounts", "ls -d /programs/bin/sh /part/sh /web/server")).To(Equal("/part/sh\n/programs/bin/sh\n/web/server\n"))
		Expect(s.run(ctx, "exec", "mounts", "--container=second", "--", "ls", "/web/server")).To(Equal("/web/server\n"))
		for _, dir := range []string{"/programs", "/part", "/web"} {
			Expect(s.exec(ctx, "mounts", "touch "+dir+"/file 2>&1; true")).To(ContainSubstring("Read-only file system"))
		}

		By("after a restart of a container, too")
		_, _ = s.try(ctx, "exec", "mounts", "--", "kill", "1") // which may kill it, too
		s.await(ctx, "mounts", And(beReady(), container("main", And(restarted(1), terminatedBefore("Error", 3)))))
		Expect(s.exec(ctx, "mounts", "ls /web/server")).To(Equal("/web/server\n"))

		By("which go with the pod")
		mounts := func() (string, error) {
			content, err := os.ReadFile("/proc/self/mountinfo")
			return string(content), err
		}
		Expect(mounts()).To(ContainSubstring("/image-volumes/"))
		s.run(ctx, "delete", "pod", "mounts")
		Eventually(mounts).ShouldNot(ContainSubstring("/image-volumes/"))

		By("of an image that the node does not have")
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: misses}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: none, image: {reference: "localhost/svc/none:1", pullPolicy: Never}}]
  containers: [{name: main, image: "localhost/svc/busybox:1", command: [sleep, "1000"], volumeMounts: [{name: none, mountPath: /none}]}]
`)
		s.await(ctx, "misses", container("main", waiting("ErrImageNeverPull")))
	})
})
