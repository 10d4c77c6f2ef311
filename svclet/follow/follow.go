// Package follow keeps a store in step with objects of the API.
package follow

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

// Objects lists and watches those objects of a resource that the selector
// picks, and tells store of them, until ctx is done. What it is calls them in
// logs ("pods of this node"). While the API server does not answer it is asked
// again at most about each 5 seconds; the log tells when that begins and ends.
func Objects(ctx context.Context, client rest.Interface, resource string, selector fields.Selector, example runtime.Object, what string, store cache.ReflectorStore) {
	source := &source{
		ListWatch: cache.NewListWatchFromClient(client, resource, metav1.NamespaceAll, selector),
		logger:    klog.FromContext(ctx).WithValues("what", what),
	}
	quiet := logr.Discard()
	reflector := cache.NewReflectorWithOptions(source, example, store, cache.ReflectorOptions{
		Logger: &quiet, Name: what,
		Backoff: &wait.Backoff{Duration: 100 * time.Millisecond, Cap: 5 * time.Second, Steps: 20, Factor: 2, Jitter: 0.5},
	})
	// The reflector would tell of each attempt.
	reflector.RunWithContext(klog.NewContext(ctx, quiet))
}

// source is where the reflector gets objects.
type source struct {
	*cache.ListWatch
	logger klog.Logger

	mu sync.Mutex
	// failed is the failure that was last told of.
	failed string
}

// IsWatchListSemanticsUnSupported makes the reflector list in the ordinary way,
// which API servers answer from memory: a watch that begins with all objects is
// off by default in svc.
func (*source) IsWatchListSemanticsUnSupported() bool { return true }

// ListWithContext implements cache.ListerWatcherWithContext.
func (s *source) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := s.ListWatch.ListWithContext(ctx, o)
	s.told(ctx, err)
	return list, err
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (s *source) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w, err := s.ListWatch.WatchWithContext(ctx, o)
	s.told(ctx, err)
	return w, err
}

// told logs the first of a row of failures, and its end.
func (s *source) told(ctx context.Context, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ctx.Err() != nil, apierrors.IsResourceExpired(err), apierrors.IsGone(err):
	case err == nil && s.failed != "":
		s.logger.Info("The API server can be read again")
		s.failed = ""
	case err != nil && s.failed != kindOf(err):
		s.logger.Error(err, "The API server cannot be read, trying again")
		s.failed = kindOf(err)
	}
}

// kindOf tells failures apart that somebody has to do different things about.
func kindOf(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return string(status.Status().Reason) + " "
	}
	return "unreachable"
}
