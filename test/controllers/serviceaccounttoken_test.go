package controllers

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"svc.dev/svc/test/launch"
)

var _ = Describe("serviceaccount-token", func() {
	It("fills the token secrets of an account, removes references to deleted ones, and deletes them with it", func(ctx SpecContext) {
		dir, err := launch.TempDir()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		// svc up gives the controller the key.
		server, err := launch.Up(ctx, filepath.Join(dir, "data"), "--controllers=serviceaccount-token")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() {
			_, err := server.Stop(launch.Patience)
			Expect(err).NotTo(HaveOccurred())
		})
		kubectl := launch.Kubectl{Kubeconfig: server.Kubeconfig, Home: dir}
		run := func(args ...string) {
			_, errOut, err := kubectl.Run(ctx, "", args...)
			Expect(err).NotTo(HaveOccurred(), errOut)
		}
		secrets := kubernetes.NewForConfigOrDie(server.Config).CoreV1().Secrets("default")
		run("create", "serviceaccount", "robot")
		_, err = secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "robot-token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}},
			Type:       corev1.SecretTypeServiceAccountToken,
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		data := func() map[string][]byte {
			s, err := secrets.Get(ctx, "robot-token", metav1.GetOptions{})
			if err != nil {
				return nil
			}
			return s.Data
		}
		Eventually(data).Should(And(HaveKey("token"), HaveKey("ca.crt"), HaveKeyWithValue("namespace", []byte("default"))))

		By("using the token")
		as := rest.AnonymousClientConfig(server.Config)
		as.BearerToken, as.CAFile, as.CAData = string(data()["token"]), "", data()["ca.crt"]
		status, body, err := launch.Get(ctx, as, "/apis")
		Expect(err).NotTo(HaveOccurred())
		Expect(status).To(Equal(200), body)

		Eventually(func() (map[string]string, error) { // no request waits for it
			used, err := secrets.Get(ctx, "robot-token", metav1.GetOptions{})
			return used.Labels, err
		}).Should(HaveKeyWithValue("kubernetes.io/legacy-token-last-used", MatchRegexp(`^\d{4}-\d{2}-\d{2}$`)))
		Eventually(func() (string, error) { // the server writes it after its start
			_, body, err := server.Get(ctx, "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking")
			return body, err
		}).Should(MatchRegexp(`"since":"\d{4}-\d{2}-\d{2}"`))
		_, body, err = server.Get(ctx, "/metrics")
		Expect(err).NotTo(HaveOccurred())
		Expect(body).To(ContainSubstring("serviceaccount_legacy_manual_token_uses_total 1\n"))

		By("deleting a secret to which the account refers")
		_, err = secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "deleted", Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}},
			Type:       corev1.SecretTypeServiceAccountToken,
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		run("patch", "serviceaccount", "robot", "--patch", `{"secrets": [{"name": "robot-token"}, {"name": "deleted"}, {"name": "absent"}]}`)
		run("delete", "secret", "deleted")
		Eventually(func() ([]corev1.ObjectReference, error) {
			account, err := kubernetes.NewForConfigOrDie(server.Config).CoreV1().ServiceAccounts("default").Get(ctx, "robot", metav1.GetOptions{})
			return account.Secrets, err
		}).Should(ConsistOf(corev1.ObjectReference{Name: "robot-token"}, corev1.ObjectReference{Name: "absent"}))

		By("deleting the account")
		run("delete", "serviceaccount", "robot")
		Eventually(data).Should(BeNil())
		Eventually(func() (int, error) {
			status, _, err := launch.Get(ctx, as, "/apis")
			return status, err
		}).Should(Equal(401))
	})
})
