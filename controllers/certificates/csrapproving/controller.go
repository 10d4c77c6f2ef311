// Package csrapproving approves the requests of nodes for their client certificates,
// if the requester may create certificatesigningrequests/nodeclient or, for its own
// name, certificatesigningrequests/selfnodeclient.
// https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping
package csrapproving

import (
	"context"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/controllers/controller"
)

const (
	name    = "csrapproving"
	workers = 2
)

// New declares the controller.
func New() controller.Controller {
	approve := controller.Can(certificatesv1.GroupName, []string{"signers"}, []string{"approve"})
	approve.ResourceNames = []string{certificatesv1.KubeAPIServerClientKubeletSignerName}
	return controller.Controller{
		Name:       name,
		Aliases:    []string{"certificatesigningrequest-approving-controller"},
		Standalone: true,
		Reads:      []client.Object{&certificatesv1.CertificateSigningRequest{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can(certificatesv1.GroupName, []string{"certificatesigningrequests/approval"}, []string{"update"}),
			controller.Can("authorization.k8s.io", []string{"subjectaccessreviews"}, []string{"create"}),
			approve,
		},
		Setup: setup,
	}
}

func setup(_ context.Context, env *controller.Env) error {
	return controller.Run(env, controller.Options{Name: name, Workers: workers}, &reconciler{env.Client, env.Live},
		controller.For(&certificatesv1.CertificateSigningRequest{}))
}
