// Package legacytokencleaner deletes the secrets of generated service account tokens that
// have not been used for a long time.
package legacytokencleaner

import (
	"context"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"svc.dev/svc/controllers/controller"
)

const (
	// Name is the controller's name.
	Name = "legacy-service-account-token-cleaner"

	periodFlag = "legacy-service-account-token-clean-up-period"
	// interval is how often a secret is checked.
	interval = 24 * time.Hour
)

// tracking is the config map in which the API server says since when it tracks uses.
var tracking = client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kube-apiserver-legacy-service-account-token-tracking"}

// New declares the controller.
func New() controller.Controller {
	period := 365 * 24 * time.Hour
	return controller.Controller{
		Name:       Name,
		Aliases:    []string{"legacy-serviceaccount-token-cleaner-controller"},
		OnDemand:   true,
		Gate:       "LegacyServiceAccountTokenCleanUp",
		Standalone: true,
		Reads:      []client.Object{&corev1.Secret{}, &corev1.ServiceAccount{}, &corev1.Pod{}},
		Selectors: []controller.Selector{
			{Object: &corev1.Secret{}, Fields: fields.OneTermEqualSelector("type", string(corev1.SecretTypeServiceAccountToken))},
		},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("", []string{"secrets"}, []string{"patch", "delete"}),
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}, ResourceNames: []string{tracking.Name}},
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.DurationVar(&period, periodFlag, period,
				"How long a generated service account token must have been unused until it is marked invalid, and how long it stays marked until its secret is deleted. At least 24h.")
		},
		Validate: func() []error { return atLeastADay(period) },
		Setup: func(_ context.Context, env *controller.Env) error {
			return controller.Run(env, controller.Options{Name: Name, Workers: 1},
				&reconciler{client: env.Client, live: env.Live, clock: env.Clock, period: period},
				controller.For(&corev1.Secret{}, predicate.NewPredicateFuncs(isToken)))
		},
	}
}

func isToken(obj client.Object) bool {
	return obj.(*corev1.Secret).Type == corev1.SecretTypeServiceAccountToken
}
