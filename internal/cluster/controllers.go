package cluster

import (
	"context"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/uuid"

	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/pki"
	"svc.dev/svc/controllers"
	"svc.dev/svc/controllers/certificates/csrsigning"
	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/hostloadbalancer"
	"svc.dev/svc/controllers/localpathprovisioner"
	"svc.dev/svc/controllers/serviceaccounttoken"
	"svc.dev/svc/internal/component"
)

// controllerManager runs the cluster's controllers.
type controllerManager struct {
	component.Task
	options *controllers.Options
	server  *options.Options
	keys    *certificates
	// sharedLease means that managers of other machines compete for the lease.
	sharedLease bool
	description string
}

// defaultClass is the storage class that a cluster has from the start.
const defaultClass = "local-path"

// Name implements component.Component.
func (*controllerManager) Name() string { return "controllers" }

// Start implements component.Component.
func (m *controllerManager) Start(ctx context.Context) error {
	picked, err := m.options.Picked("")
	if err != nil {
		return err
	}
	m.description = describe(picked)
	if len(picked) == 0 {
		return nil
	}
	// The API server accepts the tokens of its own key.
	if err := m.options.SetDefault(serviceaccounttoken.KeyFlag, m.server.ServiceAccounts.SigningKeyFile); err != nil {
		return err
	}
	if err := m.options.SetDefault(localpathprovisioner.ClassFlag, defaultClass); err != nil {
		return err
	}
	for flag, file := range map[string]string{csrsigning.CertFlag: m.keys.Certificate("ca"), csrsigning.KeyFlag: m.keys.Key("ca")} {
		if err := m.options.SetDefault(flag, file); err != nil {
			return err
		}
	}
	// The API server's port may be another one than the default.
	reserved := fmt.Sprintf("22,10250,%d", m.server.SecureServing.BindPort)
	if err := m.options.SetDefault(hostloadbalancer.ReservedFlag, reserved); err != nil {
		return err
	}
	holder := "svc-up"
	if m.sharedLease {
		if holder, err = UniqueHolder(); err != nil {
			return err
		}
	}
	manager, err := controllers.New(controllers.Config{Options: m.options, Holder: holder, API: m.keys.client("controller-manager")})
	if err != nil {
		return err
	}
	m.Go(ctx, m.Name(), manager.Run)
	return nil
}

// Ready implements component.Component. It does not wait until the controllers
// work: with an external etcd, another machine may hold their lease.
func (m *controllerManager) Ready(context.Context) (string, error) { return m.description, nil }

// Stop implements component.Component.
func (m *controllerManager) Stop() error { m.Task.Stop(); return nil }

// describe returns in a few words which controllers run.
func describe(picked []controller.Controller) string {
	switch len(picked) {
	case 0:
		return "none"
	case 1:
		return picked[0].Name
	}
	return fmt.Sprintf("%d of them", len(picked))
}

// UniqueHolder returns a name of this process for leases.
func UniqueHolder() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("read the host name: %w", err)
	}
	return host + "_" + string(uuid.NewUUID()), nil
}

// GrantComponents gives controllers their rights at the API server, and the API server
// its own at nodes.
func GrantComponents(o *options.Options) error {
	rules, err := controllers.Rules()
	if err != nil {
		return err
	}
	// A manager may start before the API server has written the role by which all
	// users discover.
	rules = append(rules, authorization.Discovery()...)
	o.Authorization.Components = append(o.Authorization.Components, authorization.Grant{User: controllers.User, Rules: rules},
		authorization.ToNodes(pki.NodesClient))
	return nil
}
