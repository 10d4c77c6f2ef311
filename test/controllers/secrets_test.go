package controllers

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"svc.dev/svc/test/launch"
)

var _ = Describe("the log", func() {
	It("has no secret and no token, even at -v=9", func(ctx SpecContext) {
		dir, err := launch.TempDir()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		const static, password, wrong, bootstrap = "static-f84hf8w", "password-93hf8a", "wrong-73hdk2p", "k3js9dk2l4ms8d0a"
		tokens := filepath.Join(dir, "tokens")
		Expect(os.WriteFile(tokens, []byte(static+",ann,1,system:masters\n"), 0o600)).To(Succeed())
		foreign := startOutside()
		s, err := launch.Up(ctx, filepath.Join(dir, "data"), append(foreign.flags(dir), "-v=9", "--token-auth-file="+tokens)...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(s.Kill)
		admin, err := kubernetes.NewForConfig(s.Config)
		Expect(err).NotTo(HaveOccurred())

		secrets := admin.CoreV1().Secrets("default")
		secret := func(name string, kind corev1.SecretType, data map[string]string) *corev1.Secret {
			return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: kind, StringData: data}
		}
		foreign.reviewSecrets(ctx, admin)
		Eventually(func() (int32, error) {
			_, err := secrets.Create(ctx, secret("reviewed", "", map[string]string{"password": password}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return foreign.admitted.Load(), err
		}).Should(BeNumerically(">", 0))
		_, err = secrets.Create(ctx, secret("own", "", map[string]string{"password": password}), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = secrets.Patch(ctx, "own", types.MergePatchType, []byte(`{"stringData":{"other":"`+password+`"}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = secrets.Create(ctx, secret("Not Valid", "", map[string]string{"password": password}), metav1.CreateOptions{})
		Expect(err).To(MatchError(apierrors.IsInvalid, "is invalid"))
		_, err = secrets.List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())

		// Controllers read and write these.
		_, err = admin.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, secret("bootstrap-token-abcdef", "bootstrap.kubernetes.io/token",
			map[string]string{"token-id": "abcdef", "token-secret": bootstrap, "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true"}), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		filled := secret("filled", corev1.SecretTypeServiceAccountToken, nil)
		filled.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
		// A token secret without an account is removed.
		Eventually(func() error {
			_, err := admin.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
			return err
		}).Should(Succeed())
		_, err = secrets.Create(ctx, filled, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() ([]byte, error) {
			filled, err = secrets.Get(ctx, "filled", metav1.GetOptions{})
			return filled.Data[corev1.ServiceAccountTokenKey], err
		}).ShouldNot(BeEmpty())
		issued, err := admin.CoreV1().ServiceAccounts("default").CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())

		signed := foreign.token(foreign.issuer, nil)
		Eventually(func() error { return whoAmI(ctx, s.Config, signed) }).Should(Succeed(), "the server has read the keys of the issuer")
		forVault, err := admin.CoreV1().ServiceAccounts("default").CreateToken(ctx, "default", &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		refused := foreign.refused()
		refused[`its audiences [\"vault\"] are not among the target audiences`] = forVault.Status.Token
		for _, token := range refused {
			Expect(whoAmI(ctx, s.Config, token)).To(MatchError("Unauthorized"), "clients learn no more")
		}
		for token, authenticates := range map[string]bool{
			static: true, wrong: false, "abcdef." + bootstrap: true, issued.Status.Token: true, string(filled.Data[corev1.ServiceAccountTokenKey]): true,
			issued.Status.Token + "x": false, reviewedToken: true,
		} {
			err := whoAmI(ctx, s.Config, token)
			if authenticates {
				Expect(err).NotTo(HaveOccurred())
			} else {
				Expect(err).To(MatchError(apierrors.IsUnauthorized, "is unauthorized"))
			}
		}
		Expect(secrets.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})).To(Succeed())
		Expect(s.Stop(launch.Patience)).To(BeZero())

		log := s.Output()
		Expect(log).To(ContainSubstring("/api/v1/namespaces/default/secrets"), "requests are logged")
		Expect(log).NotTo(ContainSubstring("PRIVATE KEY"))
		for said, token := range refused {
			Expect(log).To(ContainSubstring(said))
			Expect(log).NotTo(ContainSubstring(signature(token)))
		}
		for what, text := range map[string]string{
			"a token of an issuer": signature(signed), "a token that a webhook reviews": reviewedToken, "the token for a webhook": webhookToken, "an encryption key": encryptionKey,
			"the content of a secret": password, "a static token": static, "a rejected token": wrong, "a bootstrap token": bootstrap,
			"an issued token": signature(issued.Status.Token), "a stored token": signature(string(filled.Data[corev1.ServiceAccountTokenKey])),
		} {
			for _, spelt := range []string{text, base64.StdEncoding.EncodeToString([]byte(text))} {
				if i := strings.Index(log, spelt); i >= 0 {
					Fail(fmt.Sprintf("%s is in the log: %.300s", what, log[strings.LastIndex(log[:i], "\n")+1:]))
				}
			}
		}
	})
})

// signature is the part of a JSON web token that makes it one.
func signature(token string) string { return token[strings.LastIndex(token, ".")+1:] }

// whoAmI asks the server with a token.
func whoAmI(ctx context.Context, config *rest.Config, token string) error {
	config = rest.AnonymousClientConfig(config)
	config.BearerToken = token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	return err
}
