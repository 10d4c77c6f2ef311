// Package workload holds what the kinds that run pods from a template have in
// common: the rules of their selectors, templates, rollouts and counters, and
// the columns that show their containers.
package workload
