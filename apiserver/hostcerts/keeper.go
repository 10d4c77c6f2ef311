package hostcerts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	apiregistrationinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"
	"k8s.io/utils/clock"
)

// Config is what a Keeper needs.
type Config struct {
	Options
	// Client and APIServices are clients of the host.
	Client      kubernetes.Interface
	APIServices aggregator.Interface
	// EtcdServers are the URLs of etcd.
	EtcdServers []string
	// Directory is where the files of etcd's client are written.
	Directory string
	Clock     clock.Clock
}

// Keeper makes the Secrets of a server, and keeps them and the caBundle of the
// APIServices up to date. It writes nothing else.
type Keeper struct {
	Config
	service types.NamespacedName
	serving *serving
	etcd    EtcdFiles
	secrets []*keptSecret
	changes chan struct{}
}

// keptSecret is a Secret of the host.
type keptSecret struct {
	flag string // that names it
	types.NamespacedName
	bundle bundle
	// publish makes the server use the data.
	publish func(data map[string][]byte) error
	// data is what was published.
	data map[string][]byte
}

// New returns the keeper of valid options. It sends no request.
func New(c Config) (*Keeper, error) {
	k := &Keeper{Config: c, changes: make(chan struct{}, 1)}
	if c.ServingSecret != "" {
		name, err := parseName(c.ServingSecret)
		if err != nil {
			return nil, fmt.Errorf("--serving-secret: %w", err)
		}
		k.service = types.NamespacedName{Namespace: name.Namespace, Name: c.ServingService}
		k.serving = &serving{name: "secret::" + c.ServingSecret}
		k.secrets = append(k.secrets, &keptSecret{flag: "serving-secret", NamespacedName: name, bundle: servingBundle(k.service), publish: k.serving.publish})
	}
	if c.EtcdSecret != "" {
		name, err := parseName(c.EtcdSecret)
		if err != nil {
			return nil, fmt.Errorf("--etcd-secret: %w", err)
		}
		etcd, err := etcdBundle(c.EtcdServers)
		if err != nil {
			return nil, err
		}
		k.etcd = etcdFiles(c.Directory)
		k.secrets = append(k.secrets, &keptSecret{flag: "etcd-secret", NamespacedName: name, bundle: etcd, publish: k.etcd.publish})
	}
	return k, nil
}

// Serving returns the serving certificate, or nil without --serving-secret. It has one
// after Start.
func (k *Keeper) Serving() dynamiccertificates.CertKeyContentProvider {
	if k.serving == nil {
		return nil
	}
	return k.serving
}

// Service returns the Service that APIServices of this server name; ok is false without
// --serving-secret.
func (k *Keeper) Service() (name types.NamespacedName, ok bool) { return k.service, k.serving != nil }

// Etcd returns the files of etcd's client; ok is false without --etcd-secret. The files
// exist after Start.
func (k *Keeper) Etcd() (files EtcdFiles, ok bool) { return k.etcd, k.EtcdSecret != "" }

// Start makes the Secrets that do not exist, and reads the others.
func (k *Keeper) Start(ctx context.Context) error {
	for _, s := range k.secrets {
		err := k.syncSecret(ctx, s)
		if apierrors.IsNotFound(err) { // its namespace: a Secret is made
			return fmt.Errorf("--%s: %w: create it first, or name another Secret", s.flag, err)
		}
		if err != nil {
			return fmt.Errorf("--%s: %w", s.flag, err)
		}
	}
	return nil
}

const (
	// attempts is how often a Secret is read again that another server has written.
	attempts = 10
	// shortestWait is the least time between two calls that no change has caused.
	shortestWait = time.Minute
)

// syncSecret creates or renews a Secret if that is due, and publishes it.
func (k *Keeper) syncSecret(ctx context.Context, s *keptSecret) error {
	for range attempts {
		data, err := k.renewSecret(ctx, s)
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			continue // another server has written it: use that
		}
		if err != nil {
			return fmt.Errorf("secret %s: %w", s.NamespacedName, err)
		}
		if maps.EqualFunc(data, s.data, bytes.Equal) {
			return nil
		}
		if err := s.publish(data); err != nil {
			return fmt.Errorf("use secret %s: %w", s.NamespacedName, err)
		}
		s.data = data
		return nil
	}
	return fmt.Errorf("secret %s: other servers changed it at each of %d attempts", s.NamespacedName, attempts)
}

// renewSecret returns the data that the Secret has, which it has written if need be.
func (k *Keeper) renewSecret(ctx context.Context, s *keptSecret) (map[string][]byte, error) {
	secrets := k.Client.CoreV1().Secrets(s.Namespace)
	have, err := secrets.Get(ctx, s.Name, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return nil, err
	}
	if missing {
		have = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, Labels: map[string]string{"app.kubernetes.io/part-of": "svc"}},
			Type:       corev1.SecretTypeOpaque,
		}
	}
	data, reasons, err := s.bundle.renew(have.Data, k.Clock.Now())
	if err != nil {
		return nil, fmt.Errorf("%w; delete the Secret to have a new one made", err)
	}
	if len(reasons) == 0 {
		return have.Data, nil
	}
	written := have.DeepCopy()
	written.Data = data
	if missing {
		_, err = secrets.Create(ctx, written, metav1.CreateOptions{})
	} else {
		_, err = secrets.Update(ctx, written, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, err
	}
	klog.FromContext(ctx).Info("Renewed certificates", "secret", klog.KObj(written), "reasons", reasons)
	return data, nil
}

// Run renews the certificates, and follows changes of the Secrets and of APIServices,
// until ctx is done.
func (k *Keeper) Run(ctx context.Context) {
	services, stop := k.watch(ctx)
	defer stop()
	log := klog.FromContext(ctx)
	backoff := newBackoff()
	for ctx.Err() == nil {
		err := k.sync(ctx, services)
		pause := k.untilNext()
		if err != nil && ctx.Err() == nil {
			log.Error(err, "Failed to keep certificates, will retry")
			pause = backoff.Step()
		} else {
			backoff = newBackoff()
		}
		timer := k.Clock.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-k.changes:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// newBackoff returns the backoff after errors of the host.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 7, Cap: time.Minute}
}

// apiServices lists the APIServices of the host.
type apiServices interface {
	List(labels.Selector) ([]*apiregistrationv1.APIService, error)
}

// watch follows the Secrets and APIServices. stop waits until it has ended, which it
// does with ctx.
func (k *Keeper) watch(ctx context.Context) (services apiServices, stop func()) {
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { k.changed() },
		UpdateFunc: func(any, any) { k.changed() },
		DeleteFunc: func(any) { k.changed() },
	}
	var stops []func()
	var watched []cache.SharedIndexInformer
	for _, s := range k.secrets {
		factory := informers.NewSharedInformerFactoryWithOptions(k.Client, 0, informers.WithNamespace(s.Namespace),
			informers.WithTweakListOptions(func(o *metav1.ListOptions) {
				o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, s.Name).String()
			}))
		watched = append(watched, factory.Core().V1().Secrets().Informer())
		stops = append(stops, factory.Shutdown)
		defer factory.Start(ctx.Done())
	}
	if k.serving != nil {
		factory := apiregistrationinformers.NewSharedInformerFactory(k.APIServices, 0)
		informer := factory.Apiregistration().V1().APIServices()
		watched, services = append(watched, informer.Informer()), informer.Lister()
		stops = append(stops, factory.Shutdown)
		defer factory.Start(ctx.Done())
	}
	for _, informer := range watched {
		// It fails only after the informer has stopped.
		_, _ = informer.AddEventHandler(handler)
	}
	return services, func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// changed makes Run sync again. Several changes before it does are one.
func (k *Keeper) changed() {
	select {
	case k.changes <- struct{}{}:
	default:
	}
}

// sync renews the Secrets, then the APIServices.
func (k *Keeper) sync(ctx context.Context, services apiServices) error {
	if err := k.Start(ctx); err != nil {
		return err
	}
	if k.serving == nil {
		return nil
	}
	all, err := services.List(labels.Everything())
	if err != nil {
		return err
	}
	authorities := k.secrets[0].data[authoritiesKey]
	var errs []error
	for _, service := range all {
		if !k.names(service) || bytes.Equal(service.Spec.CABundle, authorities) {
			continue
		}
		if err := k.setAuthorities(ctx, service.Name, authorities); err != nil {
			errs = append(errs, fmt.Errorf("apiservice %s: %w", service.Name, err))
		}
	}
	return errors.Join(errs...)
}

// names reports whether an APIService sends requests to the Service of this server.
func (k *Keeper) names(service *apiregistrationv1.APIService) bool {
	to := service.Spec.Service
	return to != nil && to.Namespace == k.service.Namespace && to.Name == k.service.Name
}

// setAuthorities writes the authorities by which the host verifies this server.
func (k *Keeper) setAuthorities(ctx context.Context, name string, authorities []byte) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"caBundle": authorities}})
	if err != nil {
		return err
	}
	_, err = k.APIServices.ApiregistrationV1().APIServices().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "svc-apiserver"})
	if err == nil {
		klog.FromContext(ctx).Info("Set the authorities of an APIService", "apiService", klog.KRef("", name))
	}
	if apierrors.IsNotFound(err) {
		return nil // its deletion is not known here yet
	}
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w: let the server patch it by a ClusterRole like svc-apiserver-registrar", err)
	}
	return err
}

// untilNext returns how long no certificate has to be renewed.
func (k *Keeper) untilNext() time.Duration {
	var next time.Duration
	for i, s := range k.secrets {
		at, err := s.bundle.nextRenewal(s.data)
		if err != nil { // renew has returned it
			at = k.Clock.Now()
		}
		if until := at.Sub(k.Clock.Now()); i == 0 || until < next {
			next = until
		}
	}
	return max(next, shortestWait)
}
