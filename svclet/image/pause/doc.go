// Package pause makes the image that pod sandboxes run: a program of a few
// hundred bytes that waits until its pod ends, and adopts the processes that
// the pod's containers leave behind when they share a PID namespace.
//
// The program is written here in machine code, and the image around it is made
// when it is asked for: the same bytes each time, for every platform. A node
// needs no registry for it.
package pause
