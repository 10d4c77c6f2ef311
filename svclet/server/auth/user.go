package auth

import authenticationv1 "k8s.io/api/authentication/v1"

// User and groups that Kubernetes defines.
const (
	anonymousUser        = "system:anonymous"
	unauthenticatedGroup = "system:unauthenticated"
	authenticatedGroup   = "system:authenticated"
)

// credentialID is the extra key that identifies the caller's credential.
const credentialID = "authentication.kubernetes.io/credential-id" //nolint:gosec // the name of a key

// User is an authenticated user.
type User struct {
	Name, UID string
	Groups    []string
	Extra     map[string]authenticationv1.ExtraValue
}

func anonymous() *User {
	return &User{Name: anonymousUser, Groups: []string{unauthenticatedGroup}}
}
