// Package serviceaccount issues and checks the tokens of service accounts:
// JSON Web Tokens (RFC 7519), signed by the server (document 2, section 5).
//
// There are two sorts. A TokenRequest gets one that expires, is meant for
// certain audiences, and ends with its account and, if it is bound to one, a
// pod, a secret or a node. A secret of type kubernetes.io/service-account-token
// may hold one that lasts as long as the secret; this server checks such
// tokens, and does not make them.
//
// Tokens are secrets: no error and no log quotes them.
package serviceaccount
