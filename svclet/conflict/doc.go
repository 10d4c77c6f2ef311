// Package conflict owns what is said about other programs of the machine that interfere
// with the network of pods: firewalls, other networks of pods, and networks with the same
// addresses. It changes nothing.
package conflict
