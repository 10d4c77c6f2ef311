package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/clock"

	"svc.dev/svc/apis"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/apiserver/release/losses"
	"svc.dev/svc/apiserver/release/record"
	"svc.dev/svc/apiserver/storage"
)

// recordedRelease makes the release that the server serves that of the stored objects
// before it writes one, if it loses nothing of them.
type recordedRelease struct {
	keeper *record.Keeper
	clock  clock.Clock
	// refused is the error of a release that must not serve them.
	refused error
	// failure is the error of the last attempt to decide it; nil if none has failed.
	failure atomic.Pointer[error]
	// examining is closed when etcd has answered and the stored objects are read, and done
	// when it is decided. A server that stops before does not close done.
	examining, done chan struct{}
	// full is closed when the release may serve the stored objects, but etcd has no space for
	// its record. Until done is closed, the server then reads and deletes only.
	full chan struct{}
}

func newRecordedRelease(o *options.Options, s *stores, clock clock.Clock) *recordedRelease {
	stored := map[string]string{}
	libraries := []schema.GroupVersion{apiextensionsv1.SchemeGroupVersion, apiregistrationv1.SchemeGroupVersion}
	for _, k := range s.kinds {
		if k.Stored() {
			stored[k.Resource().String()] = k.Hub.GroupVersion().String()
		}
	}
	stored["customresourcedefinitions."+libraries[0].Group] = libraries[0].String()
	stored["apiservices."+libraries[1].Group] = libraries[1].String()
	r := &recordedRelease{clock: clock, examining: make(chan struct{}), done: make(chan struct{}), full: make(chan struct{})}
	examine := sync.OnceFunc(func() { close(r.examining) })
	r.keeper = &record.Keeper{
		KV: s.backend.Client().KV, Prefix: s.backend.Prefix(), Release: o.Release, SVC: release.SVCVersion(), Storage: stored,
		Knows: func(version string) bool {
			gv, err := schema.ParseGroupVersion(version)
			return err == nil && (s.scheme.IsVersionRegistered(gv) || slices.Contains(libraries, gv))
		},
		Stored: func(ctx context.Context, name string) (bool, error) {
			return s.backend.Stored(ctx, schema.ParseGroupResource(name))
		},
		Losses: func(ctx context.Context, last release.Release) ([]record.Loss, error) {
			examine()
			all, err := s.losses(ctx, last)
			if unreadable := (*storage.Unreadable)(nil); errors.As(err, &unreadable) {
				return nil, r.keeper.Unreadable(last, unreadable)
			}
			return all, err
		},
		FlagsAt: s.served.FlagsAt,
	}
	return r
}

const (
	// checkInterval is how often an attempt that has failed is repeated.
	checkInterval = time.Second
	// fullInterval is the same at a full etcd, which stays full until an operator acts: an
	// attempt may read all objects.
	fullInterval = 10 * time.Second
)

// check decides whether the release may serve the stored objects, unless ctx is done before.
// It waits for etcd, and calls refuse if it may not.
func (r *recordedRelease) check(ctx context.Context, refuse func()) {
	setFull := sync.OnceFunc(func() { close(r.full) })
	for {
		err := r.keeper.Check(ctx)
		if refusal := (*record.Refusal)(nil); errors.As(err, &refusal) {
			r.refused, err = refusal, nil
			refuse()
		}
		if err == nil {
			close(r.done)
			return
		}
		r.failed(ctx, err)
		delay := checkInterval
		if errors.Is(err, rpctypes.ErrNoSpace) {
			setFull()
			delay = fullInterval
		}
		select {
		case <-ctx.Done():
			return
		case <-r.clock.After(delay):
		}
	}
}

// failed stores the error of an attempt, and logs it if its text is not that of the last one.
func (r *recordedRelease) failed(ctx context.Context, err error) {
	last := r.failure.Swap(&err)
	if ctx.Err() == nil && (last == nil || (*last).Error() != err.Error()) {
		klog.FromContext(ctx).Info("Failed to decide whether the release may serve the stored objects, will retry", "err", err)
	}
}

// allows waits until it is decided whether the release may serve the stored objects, and
// reports whether it may: false if stopped is closed before.
func (r *recordedRelease) allows(stopped <-chan struct{}) bool {
	select {
	case <-r.done:
		return r.refused == nil
	case <-stopped:
		return false
	}
}

// writable returns an error until it is decided that the release may serve the stored
// objects: it would drop the fields that it lacks of those that it writes.
func (r *recordedRelease) writable() error { return r.tryAgain(r.decided()) }

// deletable is writable for deletions, which a full etcd accepts: they make its space.
func (r *recordedRelease) deletable() error { return r.tryAgain(r.Check(nil)) }

// tryAgain returns the answer to a client for an error, or nil for none.
func (*recordedRelease) tryAgain(err error) error {
	if err == nil {
		return nil
	}
	unavailable := apierrors.NewServiceUnavailable(err.Error())
	unavailable.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(checkInterval / time.Second)}
	return unavailable
}

// await returns when the server may begin to serve, or has to end: when it is decided, when
// etcd is full, when ctx is done, or at the timeout if etcd has not answered by then. To read
// many objects may take longer.
func (r *recordedRelease) await(ctx context.Context, timeout <-chan time.Time) {
	select {
	case <-r.done:
		return
	case <-r.full:
		return
	case <-ctx.Done():
		return
	case <-timeout:
	}
	select {
	case <-r.examining:
		select {
		case <-r.done:
		case <-r.full:
		case <-ctx.Done():
		}
	default:
	}
}

// Name implements healthz.HealthChecker.
func (r *recordedRelease) Name() string { return "stored-release" }

// Check implements healthz.HealthChecker: a server is not ready before it is decided that it
// may serve what is stored. At a full etcd it is, for the deletions that make space.
func (r *recordedRelease) Check(*http.Request) error {
	select {
	case <-r.full:
	default:
		return r.decided()
	}
	select {
	case <-r.done:
		return r.refused
	default:
		return nil
	}
}

// decided returns an error until it is decided that the release may serve the stored objects.
func (r *recordedRelease) decided() error {
	select {
	case <-r.done:
		return r.refused
	default:
		unknown := errors.New("not known yet whether the release may serve what is stored")
		if err := r.failure.Load(); err != nil {
			return fmt.Errorf("%w: %w", unknown, *err)
		}
		return unknown
	}
}

// losses returns what the release would lose of the stored objects that releases up to last
// have written. An object of a kind that none of those after it has was written before, and
// stays in etcd, as in Kubernetes.
func (s *stores) losses(ctx context.Context, last release.Release) ([]record.Loss, error) {
	// The defaults are those of all releases: this one does not set those of fields that it lacks.
	scheme, err := apis.NewScheme(apis.Kinds())
	if err != nil {
		return nil, err
	}
	finder := losses.New(s.served, scheme)
	var all []record.Loss
	add := func(name string, k *resource.Kind, lost []string, err error) error {
		if err != nil {
			return &storage.Unreadable{Object: name, Err: err}
		}
		if len(lost) > 0 {
			all = append(all, record.Loss{Text: name + " (" + strings.Join(lost, ", ") + ")", Kind: k})
		}
		return nil
	}
	codec, _ := storage.KindCodec(s.scheme, s.kinds)
	for _, k := range s.kinds {
		if !k.Stored() || !s.served.HasLater(k, last) {
			continue
		}
		if err := s.backend.Each(ctx, k.Resource(), codec, k.New, func(obj runtime.Object) error {
			lost, err := finder.Of(k, obj)
			return add(nameOf(k.Resource(), obj), k, lost, err)
		}); err != nil {
			return nil, err
		}
	}
	err = s.eachDefinition(ctx, func(d *apiextensionsv1.CustomResourceDefinition) error {
		lost, err := finder.OfDefinition(d)
		return add(nameOf(definitionResource, d), nil, lost, err)
	})
	return all, err
}

var definitionResource = apiextensionsv1.Resource("customresourcedefinitions")

// eachDefinition calls do for each stored definition of custom resources. Errors are those
// of storage.Backend.Each.
func (s *stores) eachDefinition(ctx context.Context, do func(*apiextensionsv1.CustomResourceDefinition) error) error {
	codec := apiextensionsserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion)
	newDefinition := func() runtime.Object { return &apiextensions.CustomResourceDefinition{} }
	return s.backend.Each(ctx, definitionResource, codec, newDefinition, func(obj runtime.Object) error {
		var d apiextensionsv1.CustomResourceDefinition
		if err := apiextensionsserver.Scheme.Convert(obj, &d, nil); err != nil {
			return &storage.Unreadable{Object: nameOf(definitionResource, obj), Err: err}
		}
		return do(&d)
	})
}

// nameOf returns the resource, namespace and name of an object for a message.
func nameOf(resource schema.GroupResource, obj any) string {
	m, err := meta.Accessor(obj)
	if err != nil {
		return resource.String()
	}
	if m.GetNamespace() == "" {
		return resource.String() + " " + m.GetName()
	}
	return resource.String() + " " + m.GetNamespace() + "/" + m.GetName()
}
