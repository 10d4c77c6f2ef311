// Package podspec owns the rules of pods that the API server, the controllers
// and the node agent share: defaults, validation, warnings, QoS class, terminal
// phases, lookup of conditions, and iteration over containers.
package podspec
