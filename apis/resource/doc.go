// Package resource owns the form in which a resource type is declared.
//
// A kind is one value of [Type], in one file, read from top to bottom: its
// names, defaults, validation, subresources and table columns. Everything that the server does with the kind (REST storage,
// strategies, subresources, discovery, field selectors, OpenAPI) follows from
// that value; no other code depends on the kind's name.
//
// The Go type of a kind is the newest stable type that k8s.io/api has for it,
// its hub: it is what handlers hold in memory and what etcd stores. Other
// versions are declared by [Convert] and pass through the hub.
//
// A virtual type (an operation that is posted, such as a Binding) is a value
// of [Virtual]; one whose objects are computed for each request is a value of
// [Computed].
package resource
