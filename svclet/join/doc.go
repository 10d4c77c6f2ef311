// Package join makes a machine a node of a cluster: it verifies the cluster by a
// bootstrap token, and writes the files with which svclet starts as a service.
package join
