// Package convert owns what becomes of an object in a manifest at a release of
// Kubernetes: which version of its kind it needs, how it is rewritten to that version
// so that its behaviour stays, and what a person has to decide.
//
// It is pure: an object as a YAML node and a release go in, the changed node and the
// list of findings come out.
package convert
