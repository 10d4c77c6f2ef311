// Package netnstest runs tests of the kernel in network namespaces of their own. Only tests
// import it.
package netnstest
