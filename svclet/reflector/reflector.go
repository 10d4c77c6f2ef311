// Package reflector owns the list and watch of API objects that the node agent
// keeps a copy of.
package reflector

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Run lists and watches the objects of a resource that match the selector, and
// writes them to store, until ctx is done. description names the objects in logs
// ("pods of this node"). While the API server does not answer, requests are
// retried with an exponential backoff of at most about 5 seconds; the log has one
// line when that begins and one when it ends.
func Run(ctx context.Context, client rest.Interface, resource string, selector fields.Selector, example runtime.Object, description string, store cache.ReflectorStore) {
	RunSelected(ctx, client, resource, func(o *metav1.ListOptions) { o.FieldSelector = selector.String() }, example, description, store)
}

// RunSelected is Run for the objects that the options select.
func RunSelected(ctx context.Context, client rest.Interface, resource string, selected func(*metav1.ListOptions), example runtime.Object, description string, store cache.ReflectorStore) {
	lw := &listWatch{
		ListWatch: cache.NewFilteredListWatchFromClient(client, resource, metav1.NamespaceAll, selected),
		logger:    klog.FromContext(ctx).WithValues("objects", description),
	}
	quiet := logr.Discard()
	reflector := cache.NewReflectorWithOptions(lw, example, store, cache.ReflectorOptions{
		Logger: &quiet, Name: description,
		Backoff: &wait.Backoff{Duration: 100 * time.Millisecond, Cap: 5 * time.Second, Steps: 20, Factor: 2, Jitter: 0.5},
	})
	// The reflector itself would log every attempt.
	reflector.RunWithContext(klog.NewContext(ctx, quiet))
}

// listWatch is the reflector's connection to the API server. It logs failures in
// place of the reflector.
type listWatch struct {
	*cache.ListWatch
	logger klog.Logger

	mu sync.Mutex
	// failing is the class of the failure that was logged last, "" after a success.
	failing string
}

// IsWatchListSemanticsUnSupported makes the reflector use a list and then a watch:
// the WatchList feature is off by default in svc, and API servers answer a list
// from the watch cache.
func (*listWatch) IsWatchListSemanticsUnSupported() bool { return true }

// ListWithContext implements cache.ListerWatcherWithContext.
func (l *listWatch) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := l.ListWatch.ListWithContext(ctx, o)
	l.logTransition(ctx, err)
	return list, err
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (l *listWatch) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w, err := l.ListWatch.WatchWithContext(ctx, o)
	l.logTransition(ctx, err)
	return w, err
}

// logTransition logs the first of consecutive failures of one class, and the
// recovery.
func (l *listWatch) logTransition(ctx context.Context, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case ctx.Err() != nil, apierrors.IsResourceExpired(err), apierrors.IsGone(err):
	case err == nil && l.failing != "":
		l.logger.Info("Watching API objects again")
		l.failing = ""
	case err != nil && l.failing != failureClass(err):
		l.logger.Error(err, "Failed to list and watch API objects, will retry")
		l.failing = failureClass(err)
	}
}

// failureClass distinguishes failures that need different action by the operator.
func failureClass(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return string(status.Status().Reason) + " "
	}
	return "unreachable"
}
