// Package podspec owns the rules of PodSpec that the API server, the
// controllers and the node agent share: defaults, validation, warnings, QoS
// class, terminal phases, and iteration over containers.
package podspec
