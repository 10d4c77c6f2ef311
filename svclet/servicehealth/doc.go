// Package servicehealth owns the servers of health check node ports, by which load
// balancers learn which nodes have endpoints of a service with the external traffic
// policy Local.
package servicehealth
