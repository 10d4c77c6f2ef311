package controllers

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"

	"svc.dev/svc/internal/jointoken"
	"svc.dev/svc/svclet/join"
	"svc.dev/svc/test/launch"
)

var _ = Describe("tokencleaner and bootstrapsigner", func() {
	It("sign cluster-info with each token, and delete tokens that expire", func(ctx SpecContext) {
		dir, err := launch.TempDir()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		server, err := launch.Up(ctx, filepath.Join(dir, "data"), "--controllers=tokencleaner,bootstrapsigner")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() {
			_, err := server.Stop(launch.Patience)
			Expect(err).NotTo(HaveOccurred())
		})
		api := kubernetes.NewForConfigOrDie(server.Config).CoreV1()
		secrets, infos := api.Secrets(metav1.NamespaceSystem), api.ConfigMaps(metav1.NamespacePublic)
		_, err = infos.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cluster-info"}, Data: map[string]string{"kubeconfig": "x"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		create := func(id string, lives time.Duration) {
			token := jointoken.Token{ID: id, Key: "0123456789abcdef", Usages: jointoken.Usages(), Expires: time.Now().Add(lives)}
			_, err := secrets.Create(ctx, token.Secret(), metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		data := func() (map[string]string, error) {
			info, err := infos.Get(ctx, "cluster-info", metav1.GetOptions{})
			return info.Data, err
		}
		create("longer", time.Hour)
		Eventually(data).Should(And(HaveLen(2), HaveKey("jws-kubeconfig-longer")))
		create("shorts", 3*time.Second)
		Eventually(func() error {
			_, err := secrets.Get(ctx, "bootstrap-token-shorts", metav1.GetOptions{})
			return err
		}).Should(MatchError(apierrors.IsNotFound, "not found"))
		Eventually(data).Should(And(HaveLen(2), HaveKey("jws-kubeconfig-longer")))
		_, err = secrets.Get(ctx, "bootstrap-token-longer", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())

		By("verifying the cluster as a machine does that joins")
		binary, err := launch.Binary()
		Expect(err).NotTo(HaveOccurred())
		command, err := exec.CommandContext(ctx, binary, "token", "create", "--print-join-command", "--server="+server.Config.Host, "--svcconfig="+server.Kubeconfig).Output()
		Expect(err).NotTo(HaveOccurred())
		words := strings.Fields(string(command))
		Expect(words).To(HaveLen(7), string(command))
		id, key, err := jointoken.Parse(words[4])
		Expect(err).NotTo(HaveOccurred())
		authority, err := join.Discovery{Server: words[2], TokenID: id, TokenKey: key, Pins: words[6:], Clock: clock.RealClock{}}.Authority(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, err = cert.ParseCertsPEM(authority)
		Expect(err).NotTo(HaveOccurred())
	})
})
