// Package records owns what the cluster's domain name system has of services: the records
// of Kubernetes' DNS-based service discovery 1.1.0, as a pure function of services and
// their endpoints.
package records
