// Package plugins owns the registration of plugins: it watches the directory in which
// plugins create their registration sockets, asks each for its type and name, and passes
// it on to the handler of that type.
package plugins
