// Package serviceaccount owns the tokens of service accounts: it issues and
// verifies JSON Web Tokens (RFC 7519, document 2, section 5).
//
// There are two kinds. The token of a TokenRequest expires, is valid for certain
// audiences, and becomes invalid when its account or the pod, secret or node that
// it is bound to is deleted. The token in a secret of type
// kubernetes.io/service-account-token is valid as long as the secret; this server
// verifies such tokens, but does not issue them.
//
// Tokens are confidential: no error and no log contains them.
package serviceaccount
