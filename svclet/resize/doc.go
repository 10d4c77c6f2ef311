// Package resize owns which CPU and memory the node has allocated to the containers of
// pods, whose objects may ask for others meanwhile (KEP-1287).
package resize
