package auth

import authenticationv1 "k8s.io/api/authentication/v1"

// Names that Kubernetes gives to everybody.
const (
	anonymousUser        = "system:anonymous"
	unauthenticatedGroup = "system:unauthenticated"
	authenticatedGroup   = "system:authenticated"
)

// credentialID is the extra key that names the credential a caller has shown.
const credentialID = "authentication.kubernetes.io/credential-id" //nolint:gosec // the name of a key

// User is who calls.
type User struct {
	Name, UID string
	Groups    []string
	Extra     map[string]authenticationv1.ExtraValue
}

func anonymous() *User {
	return &User{Name: anonymousUser, Groups: []string{unauthenticatedGroup}}
}
