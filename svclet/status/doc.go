// Package status shows in the API what has become of the pods of this node.
//
// [Manager.Set] says what a pod's status is, and returns at once. What has
// changed is written as soon as the API server takes it: the newest status of
// each pod, of one pod never two at a time, and of all pods a few at once. A
// manager that has nothing to write has nothing that runs.
//
// A pod that is being deleted is deleted from the API when its last status has
// been written after [Manager.Finish].
package status
