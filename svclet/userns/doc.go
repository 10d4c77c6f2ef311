// Package userns owns which users of the machine the users of pods are that have a user
// namespace of their own (KEP-127).
package userns
