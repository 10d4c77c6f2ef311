// Package serviceaccount owns the admission plugin ServiceAccount of Kubernetes: it
// gives each new pod a service account, a volume with the account's token, and the
// account's pull secrets.
// https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin
package serviceaccount

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"

	"svc.dev/svc/apiserver/admission/kindreader"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "ServiceAccount"

// defaultName is the account of pods that name none. A controller creates it in
// every namespace.
const defaultName = "default"

// defaultAttempts is how often the default account is looked up at most. A pod may
// be created before the controller has created the account of its new namespace.
const defaultAttempts = 10

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		return &plugin{kindreader.New(informer, admission.Create, admission.Update)}, nil
	})
}

// plugin sets the account of new pods, and refuses pods of accounts that do not
// exist or may not use the pod's secrets.
type plugin struct {
	kindreader.Reader[corelisters.ServiceAccountLister]
}

var (
	_ admission.MutationInterface   = &plugin{}
	_ admission.ValidationInterface = &plugin{}
)

// informer returns the informer of the kind that the plugin reads.
func informer(f informers.SharedInformerFactory) kindreader.Informer[corelisters.ServiceAccountLister] {
	return f.Core().V1().ServiceAccounts()
}

// Admit implements admission.MutationInterface. It does not change mirror pods: a
// node agent deletes a mirror pod that differs from its static pod. It refuses those that
// Validate would, which is called after the validation of the kind.
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// The Go type is the same for every group domain of the kind.
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || a.GetSubresource() != "" || a.GetOperation() != admission.Create {
		return nil
	}
	if isMirror(pod) {
		return forbidden(a, mirrorIsBare(pod))
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = defaultName
	}
	account, err := p.account(ctx, a, pod)
	if err != nil {
		return err
	}
	if mountsToken(account, pod) {
		mountToken(pod)
	}
	if len(pod.Spec.ImagePullSecrets) == 0 {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, account.ImagePullSecrets...)
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok {
		return nil
	}
	var checks []check
	switch {
	case a.GetOperation() == admission.Create && a.GetSubresource() == "" && isMirror(pod):
		return forbidden(a, mirrorIsBare(pod))
	case a.GetOperation() == admission.Create && a.GetSubresource() == "":
		checks = []check{volumesOf, variablesOf, pullSecretsOf}
	case a.GetOperation() == admission.Update && a.GetSubresource() == "ephemeralcontainers":
		checks = []check{ephemeralVariablesOf}
	default:
		return nil
	}
	if pod.Spec.ServiceAccountName == "" {
		return forbidden(a, fmt.Errorf("no service account specified for pod %s/%s", a.GetNamespace(), pod.Name))
	}
	account, err := p.account(ctx, a, pod)
	if err != nil {
		return err
	}
	if !limitsSecrets(account) {
		return nil
	}
	for _, holds := range checks {
		if err := holds(account, pod); err != nil {
			return forbidden(a, err)
		}
	}
	return nil
}

// forbidden returns an error as an API error, or nil.
func forbidden(a admission.Attributes, err error) error {
	if err == nil {
		return nil
	}
	return admission.NewForbidden(a, err)
}

// account returns the pod's account.
func (p *plugin) account(ctx context.Context, a admission.Attributes, pod *corev1.Pod) (*corev1.ServiceAccount, error) {
	account, err := p.find(ctx, a.GetNamespace(), pod.Spec.ServiceAccountName)
	if err != nil {
		return nil, admission.NewForbidden(a, fmt.Errorf("error looking up service account %s/%s: %w", a.GetNamespace(), pod.Spec.ServiceAccountName, err))
	}
	return account, nil
}

// find returns an account. If the informer does not have it, which may not have
// synced or seen it yet, find reads it from the storage: several times for the
// default account, which a controller may be about to create.
func (p *plugin) find(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	account, err := p.Lister.ServiceAccounts(namespace).Get(name)
	if !apierrors.IsNotFound(err) {
		return account, err
	}
	attempts := 1
	if name == defaultName {
		attempts = defaultAttempts
	}
	pause := wait.Backoff{Steps: attempts, Duration: 100*time.Millisecond + rand.N(100*time.Millisecond), Factor: 1}
	err = wait.ExponentialBackoffWithContext(ctx, pause, func(ctx context.Context) (bool, error) {
		account, err = p.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return true, err
	})
	if ctx.Err() == nil && wait.Interrupted(err) {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccount"}, name)
	}
	return account, err
}
