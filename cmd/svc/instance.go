package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"svc.dev/svc/apiserver"
	"svc.dev/svc/apiserver/etcd"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/pki"
	"svc.dev/svc/controllers"
	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/svclet/containerd"
)

// stopTimeout bounds the time from the signal to the end of the process.
const stopTimeout = 10 * time.Second

// instance is one run of svc up. It starts its parts one after the other, and
// stops them in the opposite order.
type instance struct {
	dataDir      string
	opts         *options.Options
	loops        *controllers.Options
	node         *nodeOptions
	embeddedEtcd bool
	program      string // how the user calls svc
	out, errOut  io.Writer

	// notNode says why this machine is no node. If it is one, it has a name, and
	// programs that its containers take.
	notNode  error
	nodeName string
	programs containerd.Programs

	keys        *pki.PKI
	etcd        *etcd.Server // nil with an external one
	stopServing func()
	running     sync.WaitGroup // what ends after stopServing
	served      chan error     // yields what the API server's Run has returned
	stopLooping func()
	looping     sync.WaitGroup // what ends after stopLooping
	looped      chan error     // yields what the controllers' Run has returned
	// starting is true while the API server is on its way to be ready. It has
	// acknowledged nothing by then and cannot be stopped in order: its hooks
	// would take that for a failure and end the process with a stack trace.
	starting bool
	withdraw func()

	runtime    *containerd.Runtime // nil if another one is used, or none
	stopNoding func()
	noding     sync.WaitGroup // what ends after stopNoding
	noded      chan error     // yields why the node has ended; nil without one
	report     report
	muted      atomic.Bool // of the log
}

// run returns when ctx is done and all has stopped, or when some part fails.
func (u *instance) run(ctx context.Context) error {
	lock, err := openDataDir(u.dataDir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := checkPort(u.opts.SecureServing); err != nil {
		return err
	}
	// The parts outlive ctx: they are stopped in order.
	var serving context.Context
	serving, u.stopServing = context.WithCancel(context.WithoutCancel(ctx))
	if err = u.start(ctx, serving); err == nil {
		u.report.print(u.out, u)
		err = u.wait(ctx)
	}
	u.muted.Store(true)
	if ctx.Err() != nil {
		err = nil // whatever it was, the user wants it to end
	}
	if u.starting {
		return err
	}
	return errors.Join(err, u.stop())
}

// start starts the parts, and returns when the API server is ready or ctx is
// done. What has started by then keeps running until serving is done.
func (u *instance) start(ctx, serving context.Context) error {
	u.report.begin(u.errOut)
	defer u.report.end()
	type step struct {
		name  string
		start func(ctx, serving context.Context) (where string, err error)
	}
	steps := []step{
		{"keys and certificates", u.startPKI},
		{"etcd", u.startEtcd},
		{"API server", u.startServer},
		{"controllers", u.startControllers},
	}
	if u.node.mode != nodeNo {
		steps = append(steps, step{"node", u.startNode})
	}
	for _, step := range steps {
		if err := u.report.time(step.name, func() (string, error) { return step.start(ctx, serving) }); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	u.publish(ctx)
	return nil
}

func (u *instance) startPKI(_, serving context.Context) (string, error) {
	cidrs, err := u.opts.Network.ServiceCIDRs()
	if err != nil {
		return "", err
	}
	config := pki.Config{
		Dir:   pkiDir(u.dataDir),
		Names: u.names,

		ConnectionFile:  connectionFile(u.dataDir),
		ControllersFile: controllersFile(u.dataDir),
		NodeName:        u.nodeName,
		NodeFile:        nodeFile(u.dataDir),
		Server:          serverURL(u.opts),
	}
	for _, cidr := range cidrs {
		config.ServiceIPs = append(config.ServiceIPs, net.IP(cidr.Addr().Next().AsSlice()))
	}
	keys, err := pki.Open(config)
	if err != nil {
		return "", fmt.Errorf("--data-dir: %w", explainFull(u.dataDir, err))
	}
	u.running.Go(func() { keys.Run(serving) })
	u.keys = keys
	u.fillIn(keys)
	return config.Dir, nil
}

// names are the names and addresses of the serving certificate that depend on
// the machine and the command line.
func (u *instance) names() ([]string, error) {
	names, err := pki.MachineNames()
	if err != nil {
		return nil, err
	}
	for _, ip := range []net.IP{u.opts.SecureServing.BindAddress, u.opts.Network.AdvertiseAddress} {
		if ip != nil && !ip.IsUnspecified() {
			names = append(names, ip.String())
		}
	}
	if name := u.opts.Network.ExternalHostname; name != "" {
		names = append(names, name)
	}
	return names, nil
}

// fillIn sets the options that name files of the PKI.
func (u *instance) fillIn(keys *pki.PKI) {
	o := u.opts
	o.SecureServing.ServerCert.CertKey.CertFile = keys.Certificate("apiserver")
	o.SecureServing.ServerCert.CertKey.KeyFile = keys.Key("apiserver")
	o.Authentication.ClientCAFile = keys.Certificate("ca")
	if header := &o.Authentication.RequestHeader; header.ClientCAFile == "" {
		header.ClientCAFile = keys.Certificate("front-proxy-ca")
		header.AllowedNames = []string{pki.FrontProxyClient}
	}
	if accounts := &o.ServiceAccounts; accounts.SigningKeyFile == "" {
		accounts.SigningKeyFile = keys.Key("sa")
		accounts.KeyFiles = append(accounts.KeyFiles, keys.PublicKey("sa"))
	}
	if o.ProxyClientCertFile == "" {
		o.ProxyClientCertFile = keys.Certificate("front-proxy-client")
		o.ProxyClientKeyFile = keys.Key("front-proxy-client")
	}
	if agents := &o.Agents; agents.CAFile == "" {
		agents.CAFile = keys.Certificate("ca")
	}
	if agents := &o.Agents; agents.CertFile == "" {
		agents.CertFile, agents.KeyFile = keys.Certificate("apiserver-kubelet-client"), keys.Key("apiserver-kubelet-client")
	}
}

func (u *instance) startEtcd(ctx, _ context.Context) (string, error) {
	if u.embeddedEtcd {
		member, err := etcd.Start(ctx, etcd.Config{Dir: etcdDir(u.dataDir)})
		if err != nil {
			return "", fmt.Errorf("--data-dir: %w", err)
		}
		u.etcd = member
		u.opts.Etcd.Servers = member.Endpoints()
		u.opts.Etcd.Client, u.opts.Etcd.Check = member.Client(), member.Check
		u.opts.SharedStorage = false
	}
	return strings.Join(u.opts.Etcd.Servers, ","), nil
}

func (u *instance) startServer(ctx, serving context.Context) (string, error) {
	server, err := apiserver.New(ctx, u.opts)
	if err != nil {
		return "", err
	}
	ready := make(chan struct{})
	u.starting, u.served = true, make(chan error, 1)
	u.running.Go(func() { u.served <- server.Run(serving, func() { close(ready) }) })
	select {
	case <-ready:
		u.starting = false
		return serverURL(u.opts), nil
	case <-ctx.Done():
		return "", ctx.Err()
	case err := <-u.failed():
		return "", err
	case err := <-u.served:
		u.starting = false
		return "", ended(err)
	}
}

// startControllers does not wait for the controllers: with an external etcd,
// those of another machine may have to end first.
func (u *instance) startControllers(_, serving context.Context) (string, error) {
	picked, err := u.loops.Picked()
	if err != nil || len(picked) == 0 {
		return "none", err
	}
	// There is no other svc up on an embedded etcd, and the next one need not
	// wait for the lease of one that was killed.
	holder := "svc-up"
	if !u.embeddedEtcd {
		if holder, err = uniqueHolder(); err != nil {
			return "", err
		}
	}
	config := controllers.Config{Options: u.loops, Holder: holder, API: &rest.Config{
		Host: serverURL(u.opts),
		// Files, as they are read again when they are renewed.
		TLSClientConfig: rest.TLSClientConfig{
			CAFile:   u.keys.Certificate("ca"),
			CertFile: u.keys.Certificate("controller-manager"),
			KeyFile:  u.keys.Key("controller-manager"),
		},
	}}
	manager, err := controllers.New(config)
	if err != nil {
		return "", err
	}
	var looping context.Context
	looping, u.stopLooping = context.WithCancel(serving)
	u.looped = make(chan error, 1)
	u.looping.Go(func() { u.looped <- manager.Run(looping) })
	return countOf(picked), nil
}

// countOf says in short which controllers run.
func countOf(picked []controller.Controller) string {
	if len(picked) == 1 {
		return picked[0].Name
	}
	return fmt.Sprintf("%d of them", len(picked))
}

// publish lets svc kubectl find this instance. Without that its user has to set
// KUBECONFIG.
func (u *instance) publish(ctx context.Context) {
	withdraw, err := currentUser().publishConnectionFile(connectionFile(u.dataDir))
	if err != nil {
		klog.FromContext(ctx).Error(err, "svc kubectl will not find this server unless KUBECONFIG is set")
		return
	}
	u.withdraw = withdraw
}

// wait returns when ctx is done or a part has failed.
func (u *instance) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-u.failed():
		return err
	case err := <-u.served:
		return ended(err)
	case err := <-u.looped:
		return fmt.Errorf("controllers: %w", err)
	case err := <-u.noded:
		return fmt.Errorf("node: %w", err)
	}
}

// failed yields an error when etcd cannot go on.
func (u *instance) failed() <-chan error {
	if u.etcd == nil {
		return nil
	}
	return u.etcd.Failed()
}

func ended(err error) error {
	if err == nil {
		return errors.New("the API server has stopped by itself")
	}
	return fmt.Errorf("API server: %w", err)
}

// stop stops the node agent, the controllers, waits until the API server has drained and closed
// its stores, and then stops etcd.
func (u *instance) stop() error {
	if u.withdraw != nil {
		u.withdraw()
	}
	stopped := make(chan struct{})
	go func() {
		u.stopNode()
		if u.stopLooping != nil {
			u.stopLooping()
			u.looping.Wait()
		}
		u.stopServing()
		u.running.Wait()
		if u.etcd != nil {
			u.etcd.Stop()
		}
		close(stopped)
	}()
	select {
	case <-stopped:
		return nil
	case <-time.After(stopTimeout):
		return fmt.Errorf("some requests have not ended within %s and were cut off; nothing that was acknowledged is lost", stopTimeout)
	}
}
