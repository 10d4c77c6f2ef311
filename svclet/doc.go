// Package svclet is the node agent: it makes the pods that are meant for this
// machine run on it, through a container runtime that speaks CRI.
//
// Data flows one way:
//
//	source (API | files | HTTP) -> desired pods -+
//	                                             +-> pod machine -> operations -> runtime, volumes, probes
//	runtime events ----------> observed state ---+               -> status -> API
//
// The pod machine, in package pod, is pure. The folders around it own one
// thing each.
package svclet
