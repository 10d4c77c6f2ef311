// Package status owns the writing of pod statuses to the API server.
//
// [Manager.Set] sets a pod's status, and returns at once. Changes are written as
// soon as the API server accepts them: only the newest status of each pod, at most
// one request per pod at a time, and a few in total. Those of a pod that take long, or
// get no answer, do not delay those of other pods. A manager with nothing to
// write has no goroutines.
//
// A pod that is being deleted is deleted from the API server after its last status
// has been written and [Manager.Finish] was called.
package status
