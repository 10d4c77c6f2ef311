// The compiler accepts functions without a body, which go:linkname provides, only in packages
// with a file of assembly.
