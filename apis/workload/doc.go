// Package workload owns the rules that the kinds with a pod template share: those
// of selectors, templates, rollouts and counters, and the columns for containers.
package workload
