package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestAFailedSyncHasNoResult: the library ignores it, with a warning in the log for each failure.
func TestAFailedSyncHasNoResult(t *testing.T) {
	failure := errors.New("quota exceeded")
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", nil)
	for _, test := range []struct {
		name    string
		err     error
		want    reconcile.Result
		wantErr error
	}{
		{"success", nil, reconcile.Result{RequeueAfter: time.Minute}, nil},
		{"failure", failure, reconcile.Result{}, failure},
		{"conflict", conflict, reconcile.Result{Requeue: true}, nil}, //nolint:staticcheck // see conflictRetrier
	} {
		r := conflictRetrier[string]{reconcile.TypedFunc[string](func(context.Context, string) (reconcile.Result, error) {
			return reconcile.Result{RequeueAfter: time.Minute}, test.err
		})}
		if result, err := r.Reconcile(t.Context(), "request"); result != test.want || !errors.Is(err, test.wantErr) {
			t.Errorf("%s: %+v, %v; want %+v, %v", test.name, result, err, test.want, test.wantErr)
		}
	}
}
