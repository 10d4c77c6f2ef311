// Package jointoken makes and reads the secrets of bootstrap tokens, by which new
// nodes join a cluster (document 2, section 5).
package jointoken

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/util"
	"k8s.io/cluster-bootstrap/util/secrets"
	"k8s.io/cluster-bootstrap/util/tokens"
)

// DefaultGroup is the group of the tokens that nodes join with, as in kubeadm's
// clusters. "svc up" lets its members ask for a node's certificate.
const DefaultGroup = "system:bootstrappers:kubeadm:default-node-token"

// Token is a bootstrap token.
type Token struct {
	// ID is public, Key is secret. The token is ID.Key.
	ID, Key     string
	Description string
	// Expires is when the token becomes invalid; the zero time is never.
	Expires time.Time
	// Usages are some of Usages.
	Usages []string
	// Groups are the user's groups besides system:bootstrappers.
	Groups []string
}

// Usages returns the usages that a token can have.
func Usages() []string { return slices.Clone(api.KnownTokenUsages) }

// Parse returns the parts of a token. The error does not contain the token.
func Parse(token string) (id, key string, err error) {
	id, key, err = tokens.ParseToken(token)
	if err != nil {
		return "", "", fmt.Errorf("invalid token: must be 6 and 16 characters of a-z and 0-9 with a dot between them, as in abcdef.0123456789abcdef")
	}
	return id, key, nil
}

// Generate returns the parts of a random token.
func Generate() (id, key string, err error) {
	token, err := util.GenerateBootstrapToken()
	if err != nil {
		return "", "", fmt.Errorf("generate a token: %w", err)
	}
	return Parse(token)
}

// SecretName returns the name of the secret of a token, given the token or its ID.
func SecretName(token string) (string, error) {
	id, _, found := strings.Cut(token, ".")
	if !util.IsValidBootstrapTokenID(id) || found && !util.IsValidBootstrapToken(token) {
		return "", fmt.Errorf("invalid token or ID %q: an ID is 6 characters of a-z and 0-9", id)
	}
	return util.BootstrapTokenSecretName(id), nil
}

// String returns the token, which is a secret.
func (t Token) String() string { return util.TokenFromIDAndSecret(t.ID, t.Key) }

// Validate returns an error for each usage and group that is invalid.
func (t Token) Validate() (usages, groups []error) {
	for _, usage := range t.Usages {
		if !slices.Contains(api.KnownTokenUsages, usage) {
			usages = append(usages, fmt.Errorf("unsupported value %q: one of %s", usage, strings.Join(api.KnownTokenUsages, ", ")))
		}
	}
	for _, group := range t.Groups {
		if err := util.ValidateBootstrapGroupName(group); err != nil {
			groups = append(groups, fmt.Errorf("invalid group %q: must be system:bootstrappers: and a name of a-z, 0-9, : and -", group))
		}
	}
	if len(t.Groups) > 0 && !slices.Contains(t.Usages, "authentication") {
		groups = append(groups, fmt.Errorf("they have an effect only with the usage authentication"))
	}
	return usages, groups
}

// Secret returns the token's secret.
func (t Token) Secret() *corev1.Secret {
	data := map[string]string{api.BootstrapTokenIDKey: t.ID, api.BootstrapTokenSecretKey: t.Key}
	if t.Description != "" {
		data[api.BootstrapTokenDescriptionKey] = t.Description
	}
	if !t.Expires.IsZero() {
		data[api.BootstrapTokenExpirationKey] = t.Expires.UTC().Format(time.RFC3339)
	}
	for _, usage := range t.Usages {
		data[api.BootstrapTokenUsagePrefix+usage] = "true"
	}
	if len(t.Groups) > 0 {
		data[api.BootstrapTokenExtraGroupsKey] = strings.Join(t.Groups, ",")
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: util.BootstrapTokenSecretName(t.ID)},
		Type:       api.SecretTypeBootstrapToken,
		StringData: data,
	}
}

// FromSecret returns the token of a secret. It is an error if the secret has none.
func FromSecret(s *corev1.Secret) (Token, error) {
	id, named := secrets.ParseName(s.Name)
	t := Token{
		ID: secrets.GetData(s, api.BootstrapTokenIDKey), Key: secrets.GetData(s, api.BootstrapTokenSecretKey),
		Description: secrets.GetData(s, api.BootstrapTokenDescriptionKey),
	}
	if !named || t.ID != id || !util.IsValidBootstrapToken(t.String()) {
		return Token{}, fmt.Errorf("secret %s/%s has no valid token", s.Namespace, s.Name)
	}
	if text := secrets.GetData(s, api.BootstrapTokenExpirationKey); text != "" {
		expires, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return Token{}, fmt.Errorf("secret %s/%s: %s: %w", s.Namespace, s.Name, api.BootstrapTokenExpirationKey, err)
		}
		t.Expires = expires
	}
	for _, usage := range api.KnownTokenUsages {
		if secrets.GetData(s, api.BootstrapTokenUsagePrefix+usage) == "true" {
			t.Usages = append(t.Usages, usage)
		}
	}
	if groups := secrets.GetData(s, api.BootstrapTokenExtraGroupsKey); groups != "" {
		t.Groups = strings.Split(groups, ",")
	}
	return t, nil
}
