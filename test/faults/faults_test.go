// Package faults stops what svc depends on, or svc itself, and checks
// what is left.
package faults

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"svc.dev/svc/test/launch"
)

// TestMain lets the test binary be its own etcd: see startEtcd.
func TestMain(m *testing.M) {
	if dir := os.Getenv(etcdDirVariable); dir != "" {
		runEtcd(dir, os.Getenv(etcdPortVariable))
		return
	}
	SetDefaultEventuallyTimeout(launch.Patience)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	os.Exit(m.Run())
}

// tempDir is a directory that goes with the test.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := launch.TempDir()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// up starts `svc up` without controllers, which ends with the test at the latest.
func up(t *testing.T, dataDir string, flags ...string) *launch.Server {
	t.Helper()
	server, err := launch.Up(t.Context(), dataDir, launch.WithoutControllers(flags...)...)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(server.Kill)
	return server
}

// clientOf is a client that does not hold itself back.
func clientOf(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return client
}

// get reads a path; status is 0 if there was no answer.
func get(config *rest.Config, path string) (status int, body string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	status, body, err := launch.Get(ctx, config, path)
	if err != nil {
		return 0, err.Error()
	}
	return status, body
}

// status is what get answers, without the body.
func status(config *rest.Config, path string) int {
	code, _ := get(config, path)
	return code
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": value}}
}

// run runs svc to its end and returns its exit code and output.
func run(t *testing.T, args ...string) (code int, output string) {
	t.Helper()
	g := NewWithT(t)
	binary, err := launch.Binary()
	g.Expect(err).NotTo(HaveOccurred())
	process, err := launch.Start(nil, binary, args...)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(process.Kill)
	ctx, cancel := context.WithTimeout(t.Context(), launch.Patience)
	defer cancel()
	code, err = process.Wait(ctx)
	g.Expect(err).NotTo(HaveOccurred(), process.Output())
	return code, process.Output()
}

func TestASecondServerOnTheSameDirectoryIsRefused(t *testing.T) {
	g := NewWithT(t)
	dir := filepath.Join(tempDir(t), "data")
	first := up(t, dir)
	port, err := launch.FreePort()
	g.Expect(err).NotTo(HaveOccurred())
	code, output := run(t, "up", "--data-dir="+dir, "--secure-port="+port)
	g.Expect(code).To(Equal(1), output)
	g.Expect(output).To(And(ContainSubstring(strconv.Itoa(first.Pid())), ContainSubstring(dir)))
	g.Eventually(func() int { return status(first.Config, "/livez") }).Should(Equal(http.StatusOK))
}

func TestAPortInUseIsNamed(t *testing.T) {
	g := NewWithT(t)
	first := up(t, filepath.Join(tempDir(t), "data"))
	port := portOf(t, first.Config)
	code, output := run(t, "up", "--data-dir="+filepath.Join(tempDir(t), "data"), "--secure-port="+port)
	g.Expect(code).To(Equal(1), output)
	g.Expect(output).To(And(ContainSubstring(port), ContainSubstring("address already in use"), ContainSubstring("--secure-port")))
}

func TestADirectoryThatCannotBeUsedIsNamed(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join(tempDir(t), "file")
	g.Expect(os.WriteFile(file, nil, 0o600)).To(Succeed())
	code, output := run(t, "up", "--data-dir="+file)
	g.Expect(code).To(Equal(1), output)
	g.Expect(output).To(ContainSubstring(file))
}

func TestATermSignalEndsTheServerInTime(t *testing.T) {
	g := NewWithT(t)
	dir := filepath.Join(tempDir(t), "data")
	// What holds the server up does so for as long as a request may take.
	server := up(t, dir, "--request-timeout=10m")
	client := clientOf(t, server.Config)
	// A watch is open: it must not.
	watch, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	defer watch.Stop()
	_, err = client.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("before", "1"), metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())

	code, err := server.Stop(launch.Patience)
	g.Expect(err).NotTo(HaveOccurred(), server.Output())
	g.Expect(code).To(BeZero(), server.Output())

	again := up(t, dir)
	_, err = clientOf(t, again.Config).CoreV1().ConfigMaps("default").Get(t.Context(), "before", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
}
