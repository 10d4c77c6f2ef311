package serviceaccounttoken

import (
	"bytes"

	corev1 "k8s.io/api/core/v1"
)

func isToken(s *corev1.Secret) bool { return s.Type == corev1.SecretTypeServiceAccountToken }

// belongs reports whether a secret is one of the account. A secret without a UID
// belongs to any account of its name.
func belongs(s *corev1.Secret, account *corev1.ServiceAccount) bool {
	uid := s.Annotations[corev1.ServiceAccountUIDKey]
	return uid == "" || uid == string(account.UID)
}

// incomplete reports whether a secret lacks the account's UID, the token, the
// namespace or the API server's authority.
func incomplete(s *corev1.Secret, rootCA []byte) bool {
	return s.Annotations[corev1.ServiceAccountUIDKey] == "" ||
		len(s.Data[corev1.ServiceAccountTokenKey]) == 0 ||
		len(s.Data[corev1.ServiceAccountNamespaceKey]) == 0 ||
		len(rootCA) > 0 && !bytes.Equal(s.Data[corev1.ServiceAccountRootCAKey], rootCA)
}

// complete adds to a secret what it lacks. A token and a namespace that it has
// stay.
func complete(s *corev1.Secret, account *corev1.ServiceAccount, rootCA []byte, sign func(*corev1.Secret, *corev1.ServiceAccount) (string, error)) error {
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	s.Annotations[corev1.ServiceAccountUIDKey] = string(account.UID)
	if len(rootCA) > 0 {
		s.Data[corev1.ServiceAccountRootCAKey] = rootCA
	}
	if len(s.Data[corev1.ServiceAccountNamespaceKey]) == 0 {
		s.Data[corev1.ServiceAccountNamespaceKey] = []byte(s.Namespace)
	}
	if len(s.Data[corev1.ServiceAccountTokenKey]) == 0 {
		token, err := sign(s, account)
		if err != nil {
			return err
		}
		s.Data[corev1.ServiceAccountTokenKey] = []byte(token)
	}
	return nil
}
