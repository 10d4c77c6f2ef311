package takeover

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/jws"
)

// tokenSecret is the secret part of all bootstrap tokens.
const tokenSecret = "0123456789abcdef"

// signing is the ID of the bootstrap token of a round, which is deleted in the next one, and
// expiring that of a token that expires in its round.
func signing(round int) string  { return fmt.Sprintf("s%05d", round) }
func expiring(round int) string { return fmt.Sprintf("e%05d", round) }

func secretOf(id string) string { return bootstrapapi.BootstrapTokenSecretPrefix + id }

// beginTokens creates the config map that the tokens sign.
func (w *work) beginTokens(ctx context.Context) error {
	info := &corev1.ConfigMap{ObjectMeta: meta(bootstrapapi.ConfigMapClusterInfo), Data: map[string]string{bootstrapapi.KubeConfigKey: "kind: Config"}}
	_, err := w.client.CoreV1().ConfigMaps(metav1.NamespacePublic).Create(ctx, info, metav1.CreateOptions{})
	return err
}

// changeTokens creates a token that signs, and one that expires soon.
func (w *work) changeTokens(ctx context.Context) error {
	secrets := w.client.CoreV1().Secrets(metav1.NamespaceSystem)
	for _, id := range []string{signing(w.round), expiring(w.round)} {
		token := &corev1.Secret{ObjectMeta: meta(secretOf(id)), Type: bootstrapapi.SecretTypeBootstrapToken, StringData: map[string]string{
			bootstrapapi.BootstrapTokenIDKey: id, bootstrapapi.BootstrapTokenSecretKey: tokenSecret, bootstrapapi.BootstrapTokenUsageSigningKey: "true",
		}}
		if id == expiring(w.round) {
			token.StringData[bootstrapapi.BootstrapTokenExpirationKey] = time.Now().Add(time.Second).UTC().Format(time.RFC3339)
		}
		if _, err := secrets.Create(ctx, token, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if w.round == 1 {
		return nil
	}
	return secrets.Delete(ctx, secretOf(signing(w.round-1)), metav1.DeleteOptions{})
}

// tokens checks that the token of the round has signed, alone, and that the other has gone.
func (w *work) tokens(ctx context.Context) error {
	if w.round == 0 {
		return nil
	}
	info, err := w.client.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, bootstrapapi.ConfigMapClusterInfo, metav1.GetOptions{})
	if err != nil {
		return err
	}
	id := signing(w.round)
	signature := info.Data[bootstrapapi.JWSSignatureKeyPrefix+id]
	if !jws.DetachedTokenIsValid(signature, info.Data[bootstrapapi.KubeConfigKey], id, tokenSecret) || len(info.Data) != 2 {
		return fmt.Errorf("the token %s has not signed, alone: %v", id, info.Data)
	}
	switch _, err := w.client.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, secretOf(expiring(w.round)), metav1.GetOptions{}); {
	case err == nil:
		return errors.New("the expired token is there")
	case !apierrors.IsNotFound(err):
		return err
	}
	return nil
}
