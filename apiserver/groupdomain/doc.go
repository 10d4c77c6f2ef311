// Package groupdomain owns the names of API groups on the wire of an aggregated
// server, whose groups have a domain of their own beside the host's.
//
// What is stored, and what all stages after the filter see, are Kubernetes' names;
// so the same etcd can be served standalone, and no stage but this one knows of the
// domain. The filter translates the path, the query and the body of a request, and
// the body of its response: where a document names a group is data (see fields.go),
// so that the bodies of built-in kinds and of custom resources are translated alike.
package groupdomain
