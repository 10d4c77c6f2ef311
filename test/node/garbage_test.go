package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/svclet/image/pause"
	"svc.dev/svc/test/launch"
)

// An agent of its own that has a small disk for images and logs.
var _ = Describe("on a small disk, a node", Ordered, ContinueOnFailure, func() {
	const (
		diskSize  = 1 << 30
		imageSize = 48 << 20 // twice that on the disk: as an archive, and unpacked
		high, low = 60, 35   // percent
	)
	var (
		disk    string
		machine *launch.Machine
		agent   *launch.Agent
		s       space
	)
	// present returns the names of the machine's images.
	present := func(ctx context.Context) func() ([]string, error) {
		return func() ([]string, error) {
			conn, err := grpc.NewClient(machine.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				return nil, err
			}
			defer conn.Close()
			all, err := runtimeapi.NewImageServiceClient(conn).ListImages(ctx, &runtimeapi.ListImagesRequest{})
			var names []string
			for _, image := range all.GetImages() {
				names = append(names, image.RepoTags...)
			}
			return names, err
		}
	}
	// usage is how much of the disk is in use, in percent.
	usage := func() (int, error) {
		var stat unix.Statfs_t
		if err := unix.Statfs(disk, &stat); err != nil {
			return 0, err
		}
		return 100 - int(stat.Bavail*100/stat.Blocks), nil //nolint:gosec // a percentage
	}

	BeforeAll(func(ctx SpecContext) {
		disk = smallDisk(ctx, diskSize, 32768)
		machine = newMachineIn(ctx, disk)
		program, err := launch.Svclet.Program()
		Expect(err).NotTo(HaveOccurred())
		agent, err = machine.NewAgent(launch.Svclet, program, "full")
		Expect(err).NotTo(HaveOccurred())
		agent.Fields = map[string]any{
			"imageGCHighThresholdPercent": high, "imageGCLowThresholdPercent": low, "imageMinimumGCAge": "0s",
			"containerLogMaxSize": "2Mi", "containerLogMaxFiles": 3, "containerLogMonitorInterval": "3s",
		}
		cluster, err := node.Cluster()
		Expect(err).NotTo(HaveOccurred())
		Expect(agent.Configure(cluster)).To(Succeed())
		Expect(agent.Start()).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			_, err := agent.Stop(launch.Patience) // first: it would register the node again
			Expect(err).NotTo(HaveOccurred())
			Expect(ctrlclient.IgnoreNotFound(client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "full"}}))).To(Succeed())
		})
		Eventually(func() (*corev1.Node, error) {
			n := &corev1.Node{}
			return n, client.Get(ctx, ctrlclient.ObjectKey{Name: "full"}, n)
		}).Should(conditionOf(corev1.NodeReady, corev1.ConditionTrue))
		s = newSpace(ctx)
		DeferCleanup(func(ctx SpecContext) { s.run(ctx, "delete", "pod", "--all", "--grace-period=0") })
		s.apply(ctx, sleeper("user", "nodeName: full"))
		s.await(ctx, "user", beReady())
	})
	ReportAfterEach(func(report SpecReport) {
		if report.Failed() && agent != nil && agent.Process != nil {
			AddReportEntry("svclet printed", lastLines(agent.Output()))
		}
	})

	It("keeps the logs of a pod that writes up to 100 MB a second within their bounds", func(ctx SpecContext) {
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  nodeName: full
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: "localhost/svc/busybox:1", command: [sh, -c, "while :; do yes 0123456789012345678901234567890123456789012345678901234567890123456789 | head -c 10000000; sleep 0.1; done"]}]
`)
		s.await(ctx, "writer", beReady())
		// The files of the container's log, with the bytes that each has.
		files := func() (map[string]int64, error) {
			found := map[string]int64{}
			return found, filepath.WalkDir(agent.PodLogs, func(path string, entry fs.DirEntry, err error) error {
				if err != nil || entry.IsDir() || !strings.Contains(path, "_writer_") {
					return err
				}
				info, err := entry.Info()
				if err == nil {
					found[filepath.Base(path)] = info.Size()
				}
				return nil // it may have been removed
			})
		}
		rotated := map[string]bool{}
		var most, fullest int
		Eventually(func() (int, error) {
			found, err := files()
			for file := range found {
				if file != "0.log" && !strings.HasSuffix(file, ".tmp") {
					rotated[strings.TrimSuffix(file, ".gz")] = true
				}
			}
			most = max(most, len(found))
			used, failed := usage()
			fullest = max(fullest, used)
			return len(rotated), errors.Join(err, failed)
		}).Should(BeNumerically(">=", 8))
		// One more is being compressed.
		Expect(most).To(BeNumerically("<=", 4))
		Expect(fullest).To(BeNumerically("<", 90))
		Expect(s.await(ctx, "writer", beReady())).To(container("main", HaveField("RestartCount", BeZero())))
		Eventually(func() (string, error) { return s.try(ctx, "logs", "writer", "--tail=1") }).Should(HavePrefix("0123456789"))
		s.run(ctx, "delete", "pod", "writer")
		Eventually(files).Should(BeEmpty())
	})

	It("removes unused images when the disk is fuller than the high threshold, until it is not fuller than the low one", func(ctx SpecContext) {
		s.apply(ctx, sleeper("late", "nodeName: full"))
		s.await(ctx, "late", beReady())
		By("while no agent runs, which would collect images meanwhile")
		_, err := agent.Stop(launch.Patience)
		Expect(err).NotTo(HaveOccurred())
		used, err := usage()
		Expect(err).NotTo(HaveOccurred())
		Expect(used).To(BeNumerically("<", low))
		var unused []any
		for used <= high {
			name := fmt.Sprintf("localhost/svc/unused%d:1", len(unused))
			unused = append(unused, name)
			content := make([]byte, imageSize)
			_, err := rand.Read(content)
			Expect(err).NotTo(HaveOccurred())
			Expect(machine.Import(ctx, launch.Image{Name: name, Files: map[string]launch.ImageFile{"/data": {Content: content}}})).To(Succeed())
			used, err = usage()
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(present(ctx)()).To(ContainElements(append(unused, busybox, pause.Name)...))

		By("at the first collection, which is at the start of an agent")
		Expect(agent.Start()).To(Succeed())
		Eventually(usage).Should(BeNumerically("<=", low))
		after, err := present(ctx)()
		Expect(err).NotTo(HaveOccurred())
		Expect(after).To(ContainElements(busybox, pause.Name))
		Expect(after).NotTo(ContainElements(unused...))
		for _, pod := range []string{"user", "late"} {
			Expect(s.await(ctx, pod, beReady())).To(container("main", HaveField("RestartCount", BeZero())))
		}
	})
})
