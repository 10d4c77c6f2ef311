package aggregation

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1client "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	apiregistrationlisters "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"
	"k8s.io/utils/clock"
)

const (
	// fallbackLabel marks the APIServices of fallback versions.
	fallbackLabel = "svc.dev/while-vacant"
	// retryInterval is the time until a failed write is retried.
	retryInterval = time.Second
)

// fallback creates the APIServices of versions that this process serves only while
// no other server does. It creates missing ones and never updates one: an
// administrator who changes such an APIService to another server hands the version
// over to that server, and takes it back by deleting the APIService.
type fallback struct {
	services map[string]*apiregistrationv1.APIService
	lister   apiregistrationlisters.APIServiceLister
	client   apiregistrationv1client.APIServicesGetter
	clock    clock.Clock
	wake     chan struct{}
}

func newFallback(lister apiregistrationlisters.APIServiceLister, client apiregistrationv1client.APIServicesGetter, clock clock.Clock) *fallback {
	return &fallback{services: map[string]*apiregistrationv1.APIService{}, lister: lister, client: client, clock: clock, wake: make(chan struct{}, 1)}
}

// add adds an APIService to those that are created. It must be called before run.
func (f *fallback) add(service *apiregistrationv1.APIService) {
	service = service.DeepCopy()
	service.Labels = map[string]string{fallbackLabel: "true"}
	f.services[service.Name] = service
}

// deleted must be called when an APIService was deleted.
func (f *fallback) deleted() {
	select {
	case f.wake <- struct{}{}:
	default: // run is due already
	}
}

// run creates missing APIServices until the context is cancelled.
func (f *fallback) run(ctx context.Context) {
	f.retry(ctx, f.removeUnserved)
	for ctx.Err() == nil {
		f.retry(ctx, f.createMissing)
		select {
		case <-f.wake:
		case <-ctx.Done():
		}
	}
}

// retry calls do until it succeeds or the context is cancelled.
func (f *fallback) retry(ctx context.Context, do func(context.Context) error) {
	for ctx.Err() == nil {
		err := do(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).Error(err, "Failed to register fallback APIServices, will retry")
		select {
		case <-f.clock.After(retryInterval):
		case <-ctx.Done():
		}
	}
}

// createMissing creates the APIServices that do not exist.
func (f *fallback) createMissing(ctx context.Context) error {
	var errs []error
	for name, service := range f.services {
		if _, err := f.lister.Get(name); err == nil {
			continue
		}
		if _, err := f.client.APIServices().Create(ctx, service, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			errs = append(errs, fmt.Errorf("create APIService %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// removeUnserved deletes, at the start, the fallback APIServices of an earlier run
// of the server whose versions this one does not serve.
func (f *fallback) removeUnserved(ctx context.Context) error {
	all, err := f.lister.List(labels.SelectorFromSet(labels.Set{fallbackLabel: "true"}))
	if err != nil {
		return err
	}
	var errs []error
	for _, service := range all {
		if f.services[service.Name] != nil || service.Spec.Service != nil {
			continue
		}
		unchanged := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &service.UID, ResourceVersion: &service.ResourceVersion}}
		err := f.client.APIServices().Delete(ctx, service.Name, unchanged)
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete APIService %s: %w", service.Name, err))
		}
	}
	return errors.Join(errs...)
}
