// Package objects holds what the pods of this node need of the API besides
// themselves: the ConfigMaps and Secrets that they name, the addresses of
// services, tokens of their service accounts, and claims.
//
// A pod is registered before its objects are asked for. Each ConfigMap and
// Secret is then watched by itself, once for all pods that name it, as the node
// authorizer allows and no more; [Options.Changed] tells whose content has
// changed. Where there is no API server, [None] stands in.
package objects
