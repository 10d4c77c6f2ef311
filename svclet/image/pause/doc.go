// Package pause owns the image that pod sandboxes run: a program of a few hundred
// bytes that waits until its pod ends, and reaps orphaned processes when the pod's
// containers share a PID namespace.
//
// The program is written in assembler (asm/) and assembled by `make generate`. The
// image around it is built when it is needed, with the same bytes every time and
// for every platform, so a node needs no registry for it.
package pause
