// Package resource says what a resource type is.
//
// A kind is one value of [Type], in one file, read from top to bottom: its
// names, its defaults, what it accepts, how it may change, how it looks in a
// table. Everything that the server does with the kind (REST storage,
// strategies, subresources, discovery, field selectors, OpenAPI) follows from
// that value; nothing else in the tree knows the kind's name.
//
// The Go type of a kind is the newest stable type that k8s.io/api has for it,
// its hub: it is what handlers hold in memory and what etcd stores. Other
// versions are declared by [Convert] and pass through the hub.
//
// A virtual type (an operation that is posted, such as a Binding) is a value
// of [Virtual]; one whose objects are found out when somebody asks is a value
// of [Computed].
package resource
