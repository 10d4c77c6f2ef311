package fleet

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"svc.dev/svc/test/launch"
)

// TestNoLogOfAnAgentHasASecret runs a pod with secrets in its environment and its volumes,
// a token, and a password for its image, by an agent that logs with -v=9.
func TestNoLogOfAnAgentHasASecret(t *testing.T) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("only root on Linux runs agents")
	}
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(patience)
	dir, err := launch.TempDir()
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { os.RemoveAll(dir) })
	server, err := launch.Up(t.Context(), filepath.Join(dir, "data"))
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(server.Kill)
	cluster, err := server.Cluster()
	g.Expect(err).NotTo(HaveOccurred())
	program, err := launch.Svclet.Program()
	g.Expect(err).NotTo(HaveOccurred())
	client, err := kubernetes.NewForConfig(server.Config)
	g.Expect(err).NotTo(HaveOccurred())

	f := &Fleet{dir: filepath.Join(dir, "agents")}
	g.Expect(os.Mkdir(f.dir, 0o700)).To(Succeed())
	port, err := launch.FreePort()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(f.add(cluster, program, "secretive", port)).To(Succeed())
	a := f.agents[0]
	a.Args = append(a.Args, "-v=9")
	g.Expect(a.Start()).To(Succeed())
	t.Cleanup(a.Kill)

	const value, password = "hunter2-in-the-secret", "swordfish-of-the-registry"
	secrets := client.CoreV1().Secrets(metav1.NamespaceDefault)
	_, err = secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "value"}, StringData: map[string]string{"value": value},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "registry"}, Type: corev1.SecretTypeDockerConfigJson,
		StringData: map[string]string{corev1.DockerConfigJsonKey: fmt.Sprintf(`{"auths": {"localhost": {"username": "ann", "password": %q}}}`, password)},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "secretive"},
		Spec: corev1.PodSpec{
			ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}},
			Containers: []corev1.Container{{
				Name: "main", Image: image, ImagePullPolicy: corev1.PullAlways,
				Env: []corev1.EnvVar{{Name: "VALUE", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
					LocalObjectReference: corev1.LocalObjectReference{Name: "value"}, Key: "value",
				}}}},
				VolumeMounts: []corev1.VolumeMount{{Name: "value", MountPath: "/value"}},
			}},
			Volumes: []corev1.Volume{{Name: "value", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "value"}}}},
		},
	}
	g.Eventually(func() error { // the account comes after the namespace
		_, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	}).Should(Succeed())
	g.Eventually(func() (corev1.PodPhase, error) {
		got, err := client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), pod.Name, metav1.GetOptions{})
		return got.Status.Phase, err
	}).Should(Equal(corev1.PodRunning))

	confidential := map[string]string{"a secret's value": value, "the password of a registry": password, "a token": tokenBelow(t, filepath.Join("/proc", strconv.Itoa(a.Pid()), "root", a.dir))}
	_, err = a.Stop(launch.Patience)
	g.Expect(err).NotTo(HaveOccurred())
	a.runtime.Close()
	log := a.Output()
	g.Expect(len(log)).To(BeNumerically(">", 1<<14), "with -v=9 there is much to read")
	for what, text := range confidential {
		for _, form := range []string{text, base64.StdEncoding.EncodeToString([]byte(text)), strings.TrimSpace(fmt.Sprintf("% x", text[:6]))} {
			if at := strings.Index(log, form); at >= 0 {
				t.Errorf("the log has %s: %.300s", what, log[strings.LastIndexByte(log[:at], '\n')+1:])
			}
		}
	}
}

// tokenBelow returns the token that the agent has written for the pod, below a directory
// of its namespace of mounts.
func tokenBelow(t *testing.T, dir string) (token string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "token" {
			return err
		}
		content, err := os.ReadFile(path)
		token = string(content)
		return err
	})
	if err != nil || token == "" {
		t.Fatalf("no token below %s: %v", dir, err)
	}
	return token
}
