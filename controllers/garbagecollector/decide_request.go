package garbagecollector

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/controllers/garbagecollector/graph"
)

// deleteOptions returns the options of a delete: it fails if the object has changed
// since the decision.
func deleteOptions(a graph.Action) metav1.DeleteOptions {
	version := strconv.FormatUint(a.Version, 10)
	return metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &a.Object.UID, ResourceVersion: &version},
		PropagationPolicy: &a.Policy,
	}
}

// operation is a step of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// patchFor returns the JSON patch of an action. Its tests fail if the object has
// changed since the decision.
func patchFor(a graph.Action) []operation {
	patch := []operation{
		{"test", "/metadata/uid", a.Object.UID},
		{"test", "/metadata/resourceVersion", strconv.FormatUint(a.Version, 10)},
	}
	if a.Verb == graph.RemoveFinalizer {
		at := fmt.Sprintf("/metadata/finalizers/%d", a.Index)
		return append(patch, operation{"test", at, a.Finalizer}, operation{Op: "remove", Path: at})
	}
	// In reverse order, as removing one changes the indexes after it.
	for _, ref := range slices.Backward(a.References) {
		at := fmt.Sprintf("/metadata/ownerReferences/%d", ref.Index)
		patch = append(patch, operation{"test", at + "/uid", ref.UID})
		if a.Verb == graph.Disown {
			patch = append(patch, operation{Op: "remove", Path: at})
		} else {
			patch = append(patch, operation{"replace", at + "/blockOwnerDeletion", new(false)})
		}
	}
	return patch
}

// outcome returns the result of a request whose response is the object.
func outcome(name string) func(*metav1.PartialObjectMetadata, error) (graph.Result, error) {
	return func(m *metav1.PartialObjectMetadata, err error) (graph.Result, error) {
		if err != nil {
			return failure(name, err), err
		}
		o, err := objectOf(m)
		if err != nil {
			return graph.Result{}, err
		}
		return graph.Result{Outcome: graph.Present, Object: o}, nil
	}
}

// failure returns what an error says about an object.
func failure(name string, err error) graph.Result {
	switch {
	case saysAbsent(name, err):
		return graph.Result{Outcome: graph.Absent}
	// A JSON patch whose test fails is reported as invalid.
	case apierrors.IsConflict(err), apierrors.IsInvalid(err):
		return graph.Result{Outcome: graph.Conflict}
	}
	return graph.Result{Outcome: graph.Failed}
}

// saysAbsent reports whether the response says that the object does not exist. The
// API server uses the same code for a resource that it does not serve, but then
// names no object.
func saysAbsent(name string, err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name == name && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// objectOf returns what the graph needs of an object.
func objectOf(m *metav1.PartialObjectMetadata) (graph.Object, error) {
	version, err := strconv.ParseUint(m.ResourceVersion, 10, 64)
	if err != nil {
		return graph.Object{}, fmt.Errorf("%s %s: resourceVersion %q is not a number", m.Kind, m.Name, m.ResourceVersion)
	}
	return graph.Object{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, Version: version,
		Owners: m.OwnerReferences, Finalizers: m.Finalizers, Deleting: m.DeletionTimestamp != nil,
	}, nil
}
