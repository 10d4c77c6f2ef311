// Package openapi holds the OpenAPI definitions of every type that the server
// may serve, generated from the Go types by hack/generate.sh. To serve another
// version of a group, add its package to the list there and run `make generate` again.
//
// Definitions are named as the types' OpenAPIModelName says, such as
// io.k8s.api.core.v1.Pod.
package openapi
