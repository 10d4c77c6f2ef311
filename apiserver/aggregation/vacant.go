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
)

const (
	// vacantLabel marks an APIService that was made because there was none.
	vacantLabel = "svc.dev/while-vacant"
	// retryInterval is how long it takes until what has failed is tried again.
	retryInterval = time.Second
)

// vacant makes the APIServices of versions that are served here as long as
// nobody else serves them. It makes one where there is none, and never changes
// one: whoever writes his own server into it takes the version over, and when
// he deletes it, the version comes back here.
type vacant struct {
	services map[string]*apiregistrationv1.APIService
	lister   apiregistrationlisters.APIServiceLister
	client   apiregistrationv1client.APIServicesGetter
	wake     chan struct{}
}

func newVacant(lister apiregistrationlisters.APIServiceLister, client apiregistrationv1client.APIServicesGetter) *vacant {
	return &vacant{services: map[string]*apiregistrationv1.APIService{}, lister: lister, client: client, wake: make(chan struct{}, 1)}
}

// add adds a service to those that are made. It must be called before run.
func (v *vacant) add(service *apiregistrationv1.APIService) {
	service = service.DeepCopy()
	service.Labels = map[string]string{vacantLabel: "true"}
	v.services[service.Name] = service
}

// changed says that an APIService has gone.
func (v *vacant) changed() {
	select {
	case v.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// run fills what is vacant until the context ends.
func (v *vacant) run(ctx context.Context) {
	v.retry(ctx, v.withdraw)
	for ctx.Err() == nil {
		v.retry(ctx, v.fill)
		select {
		case <-v.wake:
		case <-ctx.Done():
		}
	}
}

func (v *vacant) retry(ctx context.Context, do func(context.Context) error) {
	for ctx.Err() == nil {
		err := do(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).Error(err, "Registering API versions that nobody else serves has failed; trying again")
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
		}
	}
}

// fill makes the services that are not there.
func (v *vacant) fill(ctx context.Context) error {
	var errs []error
	for name, service := range v.services {
		if _, err := v.lister.Get(name); err == nil {
			continue
		}
		if _, err := v.client.APIServices().Create(ctx, service, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			errs = append(errs, fmt.Errorf("make APIService %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// withdraw removes, at the start, the services of versions that an earlier run
// of the server served in this manner and this one does not.
func (v *vacant) withdraw(ctx context.Context) error {
	all, err := v.lister.List(labels.SelectorFromSet(labels.Set{vacantLabel: "true"}))
	if err != nil {
		return err
	}
	var errs []error
	for _, service := range all {
		if v.services[service.Name] != nil || service.Spec.Service != nil {
			continue
		}
		unchanged := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &service.UID, ResourceVersion: &service.ResourceVersion}}
		err := v.client.APIServices().Delete(ctx, service.Name, unchanged)
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("remove APIService %s: %w", service.Name, err))
		}
	}
	return errors.Join(errs...)
}
