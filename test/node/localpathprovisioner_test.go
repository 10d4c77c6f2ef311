package node

import (
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

var _ = Describe("Rancher's local-path-provisioner", func() {
	It("makes directories of nodes by pods, as its manifest installs it", func(ctx SpecContext) {
		if os.Getenv("PROGRAMS") == "" {
			Skip("takes many minutes to build: run PROGRAMS=true make test-node")
		}
		image, err := launch.PeerImage("localhost/svc/local-path-provisioner:1", "local-path-provisioner")
		Expect(err).NotTo(HaveOccurred())
		archive := filepath.Join(newDir(), "image.tar")
		Expect(image.WriteFile(archive)).To(Succeed())
		Expect(importImages(ctx, archive)).To(ContainSubstring(image.Name))
		module, err := launch.ToolModule(ctx, "csi", "github.com/rancher/local-path-provisioner")
		Expect(err).NotTo(HaveOccurred())
		content, err := os.ReadFile(filepath.Join(module, "deploy/local-path-storage.yaml"))
		Expect(err).NotTo(HaveOccurred())
		volumes := newDir()
		// svc has a class local-path of its own.
		manifest := strings.NewReplacer("rancher/local-path-provisioner:v0.0.30", image.Name, "- local-path-provisioner\n", "- /local-path-provisioner\n", "image: busybox", "image: "+busybox,
			"/opt/local-path-provisioner", volumes, "kind: StorageClass\nmetadata:\n  name: local-path\n", "kind: StorageClass\nmetadata:\n  name: rancher\n").Replace(string(content))
		_, errOut, err := kubectl.Run(ctx, manifest, "apply", "--filename=-")
		Expect(err).NotTo(HaveOccurred(), errOut)
		DeferCleanup(func(ctx SpecContext) {
			_, errOut, err := kubectl.Run(ctx, manifest, "delete", "--filename=-", "--timeout=2m")
			Expect(err).NotTo(HaveOccurred(), errOut)
		})
		run(ctx, "rollout", "status", "--namespace=local-path-storage", "deployment/local-path-provisioner", "--timeout=2m")

		s := newSpace(ctx)
		s.apply(ctx, claimOf("data", "rancher", "10Mi", "")+podWith("user", "data"))
		s.await(ctx, "user", beReady())
		name := s.awaitClaim(ctx, "data", beBound()).Spec.VolumeName
		dir := filepath.Join(volumes, name+"_"+s.name+"_data")
		s.exec(ctx, "user", "echo kept > /data/file")
		Expect(os.ReadFile(filepath.Join(dir, "file"))).To(BeEquivalentTo("kept\n"))
		s.run(ctx, "delete", "pod", "user")
		s.apply(ctx, podWith("user", "data"))
		s.await(ctx, "user", beReady())
		Expect(s.exec(ctx, "user", "cat /data/file")).To(Equal("kept\n"))
		s.run(ctx, "delete", "pod", "user")
		s.run(ctx, "delete", "pvc", "data")
		Eventually(dir).ShouldNot(BeADirectory())
		Eventually(func() string { return run(ctx, "get", "pv", name, "--ignore-not-found") }).Should(BeEmpty())
		Eventually(func() string { return run(ctx, "get", "pods", "--namespace=local-path-storage", "-o=name") }).ShouldNot(ContainSubstring("helper-pod"))
	})
})
