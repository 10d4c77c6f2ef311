package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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

func TestStartsAndStopsOfControllersAreLoggedOnlyAtAHigherVerbosity(t *testing.T) {
	logged := func(verbosity int) []string {
		var lines []string
		log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{Verbosity: verbosity})
		of := loggers[reconcile.Request](log, "job")
		of(nil).Info("Starting workers")
		of(nil).Error(errors.New("no such kind"), "Could not wait")
		of(&reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: "backup"}}).Info("Created pod")
		return lines
	}
	has := func(lines []string, words ...string) bool {
		return slices.ContainsFunc(lines, func(line string) bool {
			return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) })
		})
	}
	for verbosity, want := range map[int]bool{0: false, lifecycle - 1: false, lifecycle: true} {
		lines := logged(verbosity)
		if got := has(lines, "Starting workers", `"controller"="job"`); got != want {
			t.Errorf("verbosity %d: the start is logged: %t, want %t", verbosity, got, want)
		}
		if !has(lines, "Could not wait") || !has(lines, "Created pod", `"controller"="job"`, "backup") {
			t.Errorf("verbosity %d: only %q is logged", verbosity, lines)
		}
	}
}
