package bootstrapsigner

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/util/secrets"
)

// signed returns the data of the config map with a signature of its kubeconfig by
// each token, and without signatures by others. The tokens are secrets by ID.
func signed(data, tokens map[string]string) (map[string]string, error) {
	result := maps.Clone(data)
	maps.DeleteFunc(result, func(key, _ string) bool { return strings.HasPrefix(key, api.JWSSignatureKeyPrefix) })
	for id, key := range tokens {
		signature, err := sign(data[api.KubeConfigKey], id, key)
		if err != nil {
			return nil, fmt.Errorf("sign with token %s: %w", id, err)
		}
		result[api.JWSSignatureKeyPrefix+id] = signature
	}
	return result, nil
}

// sign returns a JSON Web Signature of the algorithm HS256 without its content (RFC
// 7515, appendix F). kubeadm computes the same string and compares. (The key of a
// token is shorter than RFC 7518 requires, and go-jose does not take such keys.)
func sign(content, id, key string) (string, error) {
	header, err := json.Marshal(struct {
		Algorithm string `json:"alg"`
		KeyID     string `json:"kid"`
	}{"HS256", id})
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(encode(header) + "." + encode([]byte(content))))
	return encode(header) + ".." + encode(mac.Sum(nil)), nil
}

// signingKey returns the ID and the key of a token that may sign now.
func signingKey(s *corev1.Secret, now time.Time) (id, key string, ok bool) {
	id, named := secrets.ParseName(s.Name)
	key = secrets.GetData(s, api.BootstrapTokenSecretKey)
	ok = named && key != "" && s.DeletionTimestamp == nil &&
		secrets.GetData(s, api.BootstrapTokenIDKey) == id &&
		secrets.GetData(s, api.BootstrapTokenUsageSigningKey) == "true" &&
		!secrets.HasExpired(s, now)
	return id, key, ok
}
