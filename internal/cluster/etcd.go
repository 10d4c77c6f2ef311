package cluster

import (
	"context"
	"fmt"
	"strings"

	"svc.dev/svc/apiserver/etcd"
	"svc.dev/svc/internal/datadir"
)

// embeddedEtcd is an etcd member in this process.
type embeddedEtcd struct {
	dir    datadir.Dir
	member *etcd.Server
}

// Name implements component.Component.
func (*embeddedEtcd) Name() string { return "etcd" }

// Start implements component.Component.
func (e *embeddedEtcd) Start(ctx context.Context) (err error) {
	if e.member, err = etcd.Start(ctx, etcd.Config{Dir: e.dir.Etcd()}); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	return nil
}

// Ready implements component.Component: a member that has started serves.
func (e *embeddedEtcd) Ready(context.Context) (string, error) {
	return strings.Join(e.member.Endpoints(), ","), nil
}

// Failed implements component.Component.
func (e *embeddedEtcd) Failed() <-chan error { return e.member.Failed() }

// Stop implements component.Component.
func (e *embeddedEtcd) Stop() error { e.member.Stop(); return nil }

// externalEtcd stands for an etcd cluster that others run.
type externalEtcd struct{ servers []string }

// Name implements component.Component.
func (externalEtcd) Name() string { return "etcd" }

// Start implements component.Component.
func (externalEtcd) Start(context.Context) error { return nil }

// Ready implements component.Component. It does not wait for etcd: the API
// server does.
func (e externalEtcd) Ready(context.Context) (string, error) {
	return strings.Join(e.servers, ","), nil
}

// Failed implements component.Component.
func (externalEtcd) Failed() <-chan error { return nil }

// Stop implements component.Component.
func (externalEtcd) Stop() error { return nil }
