package faults

import (
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"svc.dev/svc/test/launch"
)

func TestNoLogHasASecretAtAnyVerbosity(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(launch.Patience)
	dir := filepath.Join(tempDir(t), "data")
	const password = "hunter2-in-the-secret"
	confidential := map[string]string{"a secret's value": password}
	// The second start lists what the first has written.
	for range 2 {
		server, err := launch.Up(t.Context(), dir, "-v=10", "--controllers=*,tokencleaner,bootstrapsigner")
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(server.Kill)
		client, err := kubernetes.NewForConfig(server.Config)
		g.Expect(err).NotTo(HaveOccurred())
		writeSecrets(t, client, password, confidential)
		_, err = server.Stop(launch.Patience)
		g.Expect(err).NotTo(HaveOccurred())
		log := server.Output()
		g.Expect(len(log)).To(BeNumerically(">", 1<<20), "with -v=10 there is much to read")
		for what, text := range confidential {
			for _, form := range []string{text, base64.StdEncoding.EncodeToString([]byte(text)), dumped(text)} {
				if at := strings.Index(log, form); at >= 0 {
					t.Errorf("the log has %s: %.300s", what, log[strings.LastIndexByte(log[:at], '\n')+1:])
				}
			}
		}
	}
}

// dumped returns a part of a text as hexadecimal dumps in client-go's log have it.
func dumped(text string) string { return strings.TrimSpace(fmt.Sprintf("% x", text[:6])) }

// writeSecrets writes secrets and tokens, and adds them to those that are confidential.
func writeSecrets(t *testing.T, client kubernetes.Interface, password string, confidential map[string]string) {
	t.Helper()
	g := NewWithT(t)
	secrets := client.CoreV1().Secrets(metav1.NamespaceDefault)
	account, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{GenerateName: "robot-"}}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	for _, secret := range []*corev1.Secret{
		{ObjectMeta: metav1.ObjectMeta{GenerateName: "password-"}, StringData: map[string]string{"password": password}},
		{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "token-", Annotations: map[string]string{corev1.ServiceAccountNameKey: account.Name}},
			Type:       corev1.SecretTypeServiceAccountToken,
		},
	} {
		created, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		if secret.Type == corev1.SecretTypeServiceAccountToken {
			g.Eventually(func() string {
				if created, err = secrets.Get(t.Context(), created.Name, metav1.GetOptions{}); err != nil {
					return ""
				}
				return string(created.Data[corev1.ServiceAccountTokenKey])
			}, launch.Patience).ShouldNot(BeEmpty())
			confidential["the token of secret "+created.Name] = string(created.Data[corev1.ServiceAccountTokenKey])
		}
	}
	token, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).CreateToken(t.Context(), account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	confidential["a requested token"] = token.Status.Token
	_, err = client.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token.Status.Token},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
}
