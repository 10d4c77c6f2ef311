// Package serviceaccounttoken fills the secrets of type
// kubernetes.io/service-account-token with a token of their service account,
// deletes those whose account does not exist, and removes the references of accounts
// to those that are deleted.
package serviceaccounttoken

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"svc.dev/svc/controllers/controller"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{concurrent: 5}
	return controller.Controller{
		Name:       name,
		Aliases:    []string{"serviceaccount-token-controller"},
		Standalone: true,
		Reads:      []client.Object{&corev1.Secret{}, &corev1.ServiceAccount{}},
		Selectors: []controller.Selector{
			{Object: &corev1.Secret{}, Fields: fields.OneTermEqualSelector("type", string(corev1.SecretTypeServiceAccountToken))},
		},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("", []string{"secrets"}, []string{"patch", "delete"}),
			controller.Can("", []string{"serviceaccounts"}, []string{"patch"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.StringVar(&o.keyFile, KeyFlag, o.keyFile,
				"A PEM file of the private RSA or ECDSA key that signs the tokens of secrets. The API server verifies them by its --service-account-key-file. Empty: secrets get no tokens.")
			fs.IntVar(&o.concurrent, concurrentFlag, o.concurrent, "How many secrets with tokens are synced at the same time.")
		},
		Validate: o.validate,
		Setup:    o.setup,
	}
}

const (
	name           = "serviceaccount-token"
	concurrentFlag = "concurrent-serviceaccount-token-syncs"
	// KeyFlag names the file of the key that signs tokens.
	KeyFlag = "service-account-private-key-file"
)

type options struct {
	keyFile    string
	concurrent int
}

func (o *options) validate() []error {
	errs := controller.AtLeastOne(concurrentFlag, o.concurrent)
	if o.keyFile != "" {
		if _, err := o.signer(); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

func (o *options) signer() (*signer, error) {
	s, err := readSigner(o.keyFile)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w; name a PEM file of an RSA or ECDSA private key", KeyFlag, err)
	}
	return s, nil
}

// accountIndex finds the secrets of a service account.
const accountIndex = "service account"

// setup adds the controller if there is a key.
func (o *options) setup(ctx context.Context, env *controller.Env) error {
	if o.keyFile == "" {
		klog.FromContext(ctx).V(2).Info("Controller is not started, it has no key to sign tokens", "controller", name, "flag", "--"+KeyFlag)
		return nil
	}
	signer, err := o.signer()
	if err != nil {
		return err
	}
	err = env.Indexes.Need(ctx, controller.Index{Name: accountIndex, Object: &corev1.Secret{}, Values: func(obj client.Object) []string {
		if !isToken(obj.(*corev1.Secret)) {
			return nil
		}
		return []string{obj.GetAnnotations()[corev1.ServiceAccountNameKey]}
	}})
	if err != nil {
		return err
	}
	r := &reconciler{client: env.Client, live: env.Live, rootCA: env.RootCA, sign: signer.sign}
	err = controller.Run(env, controller.Options{Name: name, Workers: o.concurrent}, r,
		controller.For(&corev1.Secret{}, predicate.NewPredicateFuncs(func(obj client.Object) bool { return isToken(obj.(*corev1.Secret)) })),
		controller.Map(&corev1.ServiceAccount{}, r.secretsOf))
	if err != nil {
		return err
	}
	return controller.Run(env, controller.Options{Name: name + "-references", Workers: o.concurrent},
		&referenceReconciler{client: env.Client, live: env.Live}, referenceEvents())
}
