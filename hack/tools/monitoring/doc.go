// Package monitoring checks the queries of the monitoring component with
// Prometheus' own parser.
package monitoring
