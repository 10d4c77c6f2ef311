package bootstrapsigner

import (
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/util/secrets"

	"svc.dev/svc/internal/jointoken"
)

// signed returns the data of the config map with a signature of its kubeconfig by
// each token, and without signatures by others. The tokens are secrets by ID.
func signed(data, tokens map[string]string) (map[string]string, error) {
	result := maps.Clone(data)
	maps.DeleteFunc(result, func(key, _ string) bool { return strings.HasPrefix(key, api.JWSSignatureKeyPrefix) })
	for id, key := range tokens {
		signature, err := jointoken.Sign(data[api.KubeConfigKey], id, key)
		if err != nil {
			return nil, fmt.Errorf("sign with token %s: %w", id, err)
		}
		result[api.JWSSignatureKeyPrefix+id] = signature
	}
	return result, nil
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
