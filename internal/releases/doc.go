// Package releases owns the table of what each release of Kubernetes serves: the
// kinds of every version of every API group, their fields and the values of their
// enumerations, with the first and the last release that has them.
//
// The table is generated from the published modules (hack/releases) and embedded as
// text. Nothing reads it before Load is called.
package releases
