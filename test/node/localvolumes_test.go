package node

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("a claim without a class", func() {
	It("gets a directory of the node, which keeps its content while pods come and go, and goes with the claim", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Mi}}}
`)
		pod := `
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {runAsUser: 1000}
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sh, -c, 'echo started >> /data/log && exec sleep 1000']
    volumeMounts: [{name: data, mountPath: /data}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
`
		s.apply(ctx, pod)
		s.await(ctx, "writer", beReady())
		name := s.run(ctx, "get", "pvc", "data", "-o", "jsonpath={.spec.volumeName}")
		dir := filepath.Join(node.DataDir, "svclet/local-volumes", name)
		Expect(os.ReadFile(filepath.Join(dir, "log"))).To(BeEquivalentTo("started\n"))

		s.run(ctx, "delete", "pod", "writer")
		s.apply(ctx, pod)
		s.await(ctx, "writer", beReady())
		Expect(os.ReadFile(filepath.Join(dir, "log"))).To(BeEquivalentTo("started\nstarted\n"))

		s.run(ctx, "delete", "pvc", "data", "--wait=false")
		Consistently(dir).Should(BeADirectory()) // the pod uses it
		s.run(ctx, "delete", "pod", "writer")
		Eventually(dir).ShouldNot(BeADirectory())
		Eventually(func() string { return s.run(ctx, "get", "pv", name, "--ignore-not-found") }).Should(BeEmpty())
		Expect(s.run(ctx, "get", "pvc", "-o", "name")).To(BeEmpty())
	})
})
