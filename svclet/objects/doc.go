// Package objects owns the agent's cache of API objects that pods refer to:
// ConfigMaps, Secrets and trust bundles, the addresses of services, tokens of service
// accounts, and claims.
//
// A pod is registered before its objects are requested. Each ConfigMap and Secret
// is then watched individually, once for all pods that refer to it, which is what
// the node authorizer allows; the trust bundles of a signer are watched together.
// [Options.Changed] reports changes. Without an API
// server, [None] is used.
package objects
