package core

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apis/resource"
)

var serviceAccounts = resource.Type[*corev1.ServiceAccount]{
	Name: "serviceaccounts", ShortNames: []string{"sa"}, Namespaced: true, ReturnDeleted: true,
	Actions:       []resource.Action{token},
	PrepareCreate: func(_ context.Context, _ *resource.Env, sa *corev1.ServiceAccount) { keepSecretNames(sa) },
	PrepareUpdate: func(_ context.Context, _ *resource.Env, sa, _ *corev1.ServiceAccount) { keepSecretNames(sa) },
	Columns: []resource.Column[*corev1.ServiceAccount]{
		resource.Name[*corev1.ServiceAccount](),
		{Name: "Secrets", Description: corev1.ServiceAccount{}.SwaggerDoc()["secrets"], Until: 34,
			Value: func(sa *corev1.ServiceAccount) any { return int64(len(sa.Secrets)) }},
		resource.Age[*corev1.ServiceAccount](),
	},
}

// keepSecretNames drops all fields of the references to the account's secrets but
// the name: the others have no meaning here.
func keepSecretNames(sa *corev1.ServiceAccount) {
	for i, secret := range sa.Secrets {
		sa.Secrets[i] = corev1.ObjectReference{Name: secret.Name}
	}
}
