package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

// After the pods are deleted, nothing of them is left on the machine. The suite
// then checks what the cleanup of the whole node leaves.
var _ = AfterSuite(func(ctx SpecContext) {
	if client == nil {
		return // the suite was skipped, or has failed before
	}
	var pods corev1.PodList
	Expect(client.List(ctx, &pods)).To(Succeed())
	for i := range pods.Items {
		Expect(ctrlclient.IgnoreNotFound(client.Delete(ctx, &pods.Items[i], &ctrlclient.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))).To(Succeed())
	}
	Eventually(func() ([]string, error) { return leftOfPods(ctx) }).Should(BeEmpty())
})

// leftOfPods returns what pods have left on the suite's node.
func leftOfPods(ctx context.Context) ([]string, error) {
	conn, err := grpc.NewClient(node.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var left []string
	add := func(what string, names ...string) {
		for _, name := range names {
			left = append(left, what+" "+name)
		}
	}
	cri := runtimeapi.NewRuntimeServiceClient(conn)
	sandboxes, err := cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	for _, s := range sandboxes.Items {
		add("sandbox", s.Metadata.Namespace+"/"+s.Metadata.Name)
	}
	containers, err := cri.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	for _, c := range containers.Containers {
		add("container", c.Metadata.Name+" "+c.Id)
	}
	agent := filepath.Join(node.DataDir, "svclet")
	for what, pattern := range map[string]string{
		"directory":     agent + "/pods/*",
		"log":           node.LogsDir() + "/*",
		"link to a log": agent + "/log/containers/*",
		"cgroup":        "/sys/fs/cgroup/*/" + node.Bridge + "/kubepods/pod*",
		"cgroup ":       "/sys/fs/cgroup/*/" + node.Bridge + "/kubepods/*/pod*",
		"address":       node.ContainerdDir() + "/ipam/*/[0-9]*.*",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		add(what, found...)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		for _, below := range []string{agent + "/pods/", node.ContainerdDir() + "/run/state/io.containerd.runtime.v2.task/", node.ContainerdDir() + "/run/state/io.containerd.grpc.v1.cri/"} {
			if strings.Contains(line, " "+below) {
				add("mount", strings.Fields(line)[4])
			}
		}
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, file := range processes {
		content, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(content), "containerd-shim") && strings.Contains(string(content), node.Endpoint()[len("unix://"):]) {
			add("shim", fmt.Sprint(filepath.Base(filepath.Dir(file))))
		}
	}
	return left, nil
}
