package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/clock"

	"svc.dev/svc/apis"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/apiserver/release/losses"
	"svc.dev/svc/apiserver/release/record"
)

// recordedRelease makes the release that the server serves that of the stored objects
// before it serves them, if it loses nothing of them.
type recordedRelease struct {
	keeper *record.Keeper
	clock  clock.Clock
	// refused is the error of a release that must not serve them.
	refused error
	// examining is closed when etcd has answered and the stored objects are read, and done
	// when it is decided.
	examining, done chan struct{}
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
	r := &recordedRelease{clock: clock, examining: make(chan struct{}), done: make(chan struct{})}
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
			return s.losses(ctx, last)
		},
		FlagsAt: s.served.FlagsAt,
	}
	return r
}

// checkInterval is how often etcd is tried.
const checkInterval = time.Second

// check decides whether the release may serve the stored objects. It waits for etcd, and
// calls refuse if it may not.
func (r *recordedRelease) check(ctx context.Context, refuse func()) {
	defer close(r.done)
	for {
		err := r.keeper.Check(ctx)
		if err == nil {
			return
		}
		if refusal := (*record.Refusal)(nil); errors.As(err, &refusal) {
			r.refused = refusal
			refuse()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-r.clock.After(checkInterval):
		}
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

// await returns when the server may begin to serve, or has to end: when it is decided, when
// ctx is done, or at the timeout if etcd has not answered by then. To read many objects may
// take longer.
func (r *recordedRelease) await(ctx context.Context, timeout <-chan time.Time) {
	select {
	case <-r.done:
		return
	case <-ctx.Done():
		return
	case <-timeout:
	}
	select {
	case <-r.examining:
		select {
		case <-r.done:
		case <-ctx.Done():
		}
	default:
	}
}

// Name implements healthz.HealthChecker.
func (r *recordedRelease) Name() string { return "stored-release" }

// Check implements healthz.HealthChecker: a server is not ready before it is decided that it
// may serve what is stored.
func (r *recordedRelease) Check(*http.Request) error {
	select {
	case <-r.done:
		return r.refused
	default:
		return errors.New("not known yet whether the release may serve what is stored")
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
	for _, k := range s.kinds {
		if !k.Stored() || !s.served.HasLater(k, last) {
			continue
		}
		objects, err := s.env.Objects(k.Resource()).List(ctx, "", labels.Everything())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.Resource(), err)
		}
		for _, obj := range objects {
			lost, err := finder.Of(k, obj)
			if err != nil {
				return nil, err
			}
			if len(lost) > 0 {
				all = append(all, record.Loss{Text: nameOf(k, obj) + " (" + strings.Join(lost, ", ") + ")", Kind: k})
			}
		}
	}
	definitions, err := s.definitions(ctx)
	if err != nil {
		return nil, err
	}
	for i := range definitions {
		lost, err := finder.OfDefinition(&definitions[i])
		if err != nil {
			return nil, err
		}
		if len(lost) > 0 {
			all = append(all, record.Loss{Text: "customresourcedefinitions." + apiextensionsv1.GroupName + " " + definitions[i].Name + " (" + strings.Join(lost, ", ") + ")"})
		}
	}
	return all, nil
}

// definitions returns the stored definitions of custom resources.
func (s *stores) definitions(ctx context.Context) ([]apiextensionsv1.CustomResourceDefinition, error) {
	version := apiextensionsv1.SchemeGroupVersion
	store, err := customresourcedefinition.NewREST(apiextensionsserver.Scheme, s.backend.RESTOptions(apiextensionsserver.Codecs.LegacyCodec(version), version))
	if err != nil {
		return nil, err
	}
	defer store.Destroy()
	list, err := store.List(ctx, &metainternalversion.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("customresourcedefinitions: %w", err)
	}
	var converted apiextensionsv1.CustomResourceDefinitionList
	if err := apiextensionsserver.Scheme.Convert(list, &converted, nil); err != nil {
		return nil, err
	}
	return converted.Items, nil
}

// nameOf returns the resource, namespace and name of an object for a message.
func nameOf(k *resource.Kind, obj any) string {
	m, err := meta.Accessor(obj)
	if err != nil {
		return k.Resource().String()
	}
	if m.GetNamespace() == "" {
		return k.Resource().String() + " " + m.GetName()
	}
	return k.Resource().String() + " " + m.GetNamespace() + "/" + m.GetName()
}
