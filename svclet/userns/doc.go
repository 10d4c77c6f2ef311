// Package userns owns which users of the machine the users of pods are that have a user
// namespace of their own (KEP-127).
//
// These users have to pass the directories above those of the container runtime. The
// package does not see to that: who may pass them is the administrator's decision.
package userns
