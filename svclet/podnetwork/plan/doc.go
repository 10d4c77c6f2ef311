// Package plan owns the decision how a node reaches the pods of other nodes: the routes,
// and with VXLAN the neighbours and tunnels, as a pure function of the nodes and of this
// machine. The scripts in testdata show it.
package plan
