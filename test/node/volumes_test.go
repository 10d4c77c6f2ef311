package node

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

var _ = Describe("volumes", func() {
	It("of type emptyDir exist as long as the pod, in memory or on disk", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: scratch}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sh, -c, 'echo x >> /disk/log; echo x >> /memory/log; [ $(wc -l < /disk/log) = 2 ] && exec sleep 1000; exit 1']
    volumeMounts: [{name: disk, mountPath: /disk}, {name: memory, mountPath: /memory}]
  - name: other
    image: localhost/svc/busybox:1
    command: [sleep, "1000"]
    volumeMounts: [{name: disk, mountPath: /seen, readOnly: true}]
  volumes:
  - {name: disk, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 16Mi}}
`)
		p := s.await(ctx, "scratch", And(beReady(), container("main", restarted(1))))
		Expect(s.exec(ctx, "scratch", "cat /memory/log; stat -f -c %T /memory /disk; df -m /memory | tail -1")).To(MatchRegexp(`^x\nx\ntmpfs\n(ext|xfs|btrfs|overlay|UNKNOWN)\S*\n.* 16 +`))
		_, err := s.try(ctx, "exec", "scratch", "--container=main", "--", "sh", "-c", "head -c 20000000 /dev/zero > /memory/big")
		Expect(err).To(HaveOccurred())
		out, err := s.try(ctx, "exec", "scratch", "--container=other", "--", "sh", "-c", "cat /seen/log; touch /seen/file")
		Expect(err).To(HaveOccurred())
		Expect(out).To(And(HavePrefix("x\nx\n"), ContainSubstring("Read-only file system")))

		dir := filepath.Join(node.DataDir, "svclet/pods", string(p.UID))
		Expect(filepath.Join(dir, "volumes/kubernetes.io~empty-dir/disk/log")).To(BeARegularFile())
		s.run(ctx, "delete", "pod", "scratch")
		Eventually(dir).ShouldNot(BeADirectory())
	})

	It("of type emptyDir evict their pod when it exceeds the size limit", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: greedy}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sh, -c, 'head -c 200000 /dev/zero > /scratch/big; exec sleep 1000']
    volumeMounts: [{name: scratch, mountPath: /scratch}]
  volumes:
  - {name: scratch, emptyDir: {sizeLimit: 100k}}
`)
		// The agent checks every ten seconds and measures every minute.
		Eventually(s.get).WithContext(ctx).WithArguments("greedy").WithTimeout(5 * time.Minute).Should(HaveField("Status", And(
			HaveField("Phase", corev1.PodFailed), HaveField("Reason", "Evicted"),
			HaveField("Message", ContainSubstring(`Usage of EmptyDir volume "scratch" exceeds the limit "100k".`)))))
		Eventually(s.events(ctx, "greedy")).Should(ContainElement(HavePrefix("Evicted: Usage of EmptyDir volume")))
	})

	DescribeTable("of type hostPath must have the declared type", func(ctx SpecContext, kind, path, want string) {
		s := newSpace(ctx)
		dir := newDir()
		Expect(os.WriteFile(filepath.Join(dir, "file"), []byte("there"), 0o644)).To(Succeed())
		Expect(os.Mkdir(filepath.Join(dir, "dir"), 0o755)).To(Succeed())
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: hosted}
spec:
  restartPolicy: Never
  containers:
  - {name: main, image: "localhost/svc/busybox:1", command: [stat, -c, "%F", /mounted], volumeMounts: [{name: host, mountPath: /mounted}]}
  volumes: [{name: host, hostPath: {path: "`+filepath.Join(dir, path)+`", type: "`+kind+`"}}]
`)
		if strings.HasPrefix(want, "hostPath type check failed") {
			Eventually(func() (string, error) { return s.try(ctx, "describe", "pod", "hosted") }).Should(MatchRegexp(`FailedMount .*` + want))
			return
		}
		s.await(ctx, "hosted", inPhase(corev1.PodSucceeded))
		Expect(s.run(ctx, "logs", "hosted")).To(Equal(want))
	},
		Entry("a directory", "Directory", "dir", "directory\n"),
		Entry("a directory that is created", "DirectoryOrCreate", "new/dir", "directory\n"),
		Entry("a file", "File", "file", "regular file\n"),
		Entry("a file that is created", "FileOrCreate", "newfile", "regular empty file\n"),
		Entry("anything", "", "file", "regular file\n"),
		Entry("not a directory", "Directory", "file", `hostPath type check failed: \S+/file is not a directory`),
		Entry("not a file", "File", "dir", `hostPath type check failed: \S+/dir is not a file`),
		Entry("not a socket", "Socket", "file", `hostPath type check failed: \S+/file is not a socket file`),
	)

	It("mount a part by subPath, which symbolic links cannot leave", func(ctx SpecContext) {
		s := newSpace(ctx)
		dir := newDir()
		Expect(os.Symlink("/etc", filepath.Join(dir, "out"))).To(Succeed())
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: parts}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sh, -c, 'echo one > /a/file; cat /whole/a/file; echo two > /n/file; cat /whole/named-parts/file']
    env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    volumeMounts:
    - {name: work, mountPath: /whole}
    - {name: work, mountPath: /a, subPath: a}
    - {name: work, mountPath: /n, subPathExpr: named-$(NAME)}
  volumes: [{name: work, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: escape}
spec:
  restartPolicy: Never
  containers:
  - {name: main, image: "localhost/svc/busybox:1", command: [ls, /mounted], volumeMounts: [{name: host, mountPath: /mounted, subPath: out/ssl}]}
  volumes: [{name: host, hostPath: {path: "`+dir+`"}}]
`)
		s.await(ctx, "parts", inPhase(corev1.PodSucceeded))
		Expect(s.run(ctx, "logs", "parts")).To(Equal("one\ntwo\n"))
		s.await(ctx, "escape", container("main", And(waiting("CreateContainerConfigError"),
			HaveField("State.Waiting.Message", ContainSubstring(`failed to prepare subPath for volumeMount "host" of container "main"`)))))
		Expect("/etc/ssl").To(BeADirectory())
	})

})
