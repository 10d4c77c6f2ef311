package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/conflict"
)

const (
	// readyTimeout bounds the time from the start of containerd to its first answer,
	// during which it loads its state of all pods.
	readyTimeout = 2 * time.Minute
	// adoptTimeout bounds the wait for an answer of a running containerd.
	adoptTimeout = 20 * time.Second
	readyPoll    = 20 * time.Millisecond

	// The bounds of the back-off before containerd is restarted. It doubles while
	// containerd runs for less than steady.
	minBackOff = 100 * time.Millisecond
	maxBackOff = 30 * time.Second
	steady     = time.Minute

	// logInterval is the time between two checks of the size of containerd's log.
	logInterval = time.Minute
)

// Runtime is a running containerd.
type Runtime struct {
	// Endpoint is the URL, with the scheme unix, of CRI and of containerd's own
	// services. It stays the same when containerd is restarted.
	Endpoint string
	// Version is the version of containerd.
	Version string
	// LogFile is containerd's log file; one older file is kept beside it.
	LogFile string
	// Warnings are sentences about features that pods lack on this machine.
	Warnings []string

	// Adopted reports whether it ran before [Start].
	Adopted bool

	settings settings
	bridge   io.Closer  // the lock of the bridge; nil if the network is not administered
	networks sync.Mutex // serializes changes of the network
	// masquerade is whether connections of pods that leave this machine get its address;
	// nil while that is as an earlier agent has left it.
	masquerade *bool
	// mtu is that of pods; 0 while it is as an earlier agent has left it.
	mtu     int
	changed chan struct{} // has a value after a change of the ranges
	process *process      // owned by keep until that has returned
	letGo   context.CancelFunc
	kept    sync.WaitGroup
}

// Start starts containerd and returns when CRI answers. A containerd that already
// runs in the same directory is adopted if it was started with the same
// configuration, and otherwise restarted, while pods go on. From then on
// containerd is restarted whenever it exits. Before it changes anything it locks the
// bridge, and returns an error if another process has.
func Start(ctx context.Context, config Config) (*Runtime, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	bridge, err := lockBridge(config.bridge(), "stop that, give svc up another bridge with --node-bridge, or name a container runtime that runs already")
	if err != nil {
		return nil, err
	}
	r := &Runtime{Endpoint: config.Endpoint(), LogFile: config.logFile(), changed: make(chan struct{}, 1), bridge: bridge}
	if err := r.start(ctx, config); err != nil {
		r.unlock()
		return nil, err
	}
	return r, nil
}

func (r *Runtime) start(ctx context.Context, config Config) (err error) {
	if r.settings, err = prepare(ctx, config); err != nil {
		return err
	}
	r.Version = r.settings.version.text
	if r.Warnings, err = r.network(ctx, config); err != nil {
		return err
	}
	content, err := r.settings.toml()
	if err != nil {
		return err
	}
	changed, err := replaceFile(config.configFile(), content)
	if err != nil {
		return fmt.Errorf("configure containerd: %w", err)
	}
	if err := r.adopt(ctx, changed); err != nil {
		return err
	}
	if r.process == nil {
		if r.process, err = r.launch(ctx); err != nil {
			r.abandon(ctx)
			return err
		}
	}
	keeping, letGo := context.WithCancel(context.WithoutCancel(ctx))
	r.letGo = letGo
	r.kept.Go(func() { r.keep(keeping) })
	return nil
}

// SetPodCIDRs changes the address ranges of new pods, and stores them for later
// starts. It returns sentences about features that pods lack.
func (r *Runtime) SetPodCIDRs(ctx context.Context, cidrs []string) (warnings []string, err error) {
	config := r.settings.Config
	config.PodCIDRs = cidrs
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if err := config.assign(cidrs); err != nil {
		return nil, fmt.Errorf("keep which addresses the cluster has given: %w", err)
	}
	warnings, err = r.network(ctx, config)
	select {
	case r.changed <- struct{}{}:
	default:
	}
	return warnings, err
}

// PodRangesChanged receives a value after [Runtime.SetPodCIDRs]. It has one reader.
func (r *Runtime) PodRangesChanged() <-chan struct{} { return r.changed }

// Gateways returns the addresses at which pods reach this machine: those of the bridge, one
// for each range of pods. It makes the bridge, which otherwise exists from the first pod on.
func (r *Runtime) Gateways() ([]netip.Addr, error) {
	r.networks.Lock()
	defer r.networks.Unlock()
	ranges, err := r.settings.Ranges()
	if err != nil {
		return nil, err
	}
	return r.settings.gateways(ranges)
}

// SetMTU sets the MTU of new pods, in bytes, which is kept for later starts.
func (r *Runtime) SetMTU(mtu int) error {
	r.networks.Lock()
	defer r.networks.Unlock()
	if r.mtu == mtu {
		return nil
	}
	if _, _, err := r.settings.writeNetwork(mtu); err != nil {
		return fmt.Errorf("set the MTU of pods: %w", err)
	}
	r.mtu = mtu
	return nil
}

// HostNetworkOnly reports whether only pods with hostNetwork can run, because this process
// lacks CAP_NET_ADMIN. A warning says so.
func (r *Runtime) HostNetworkOnly() bool { return r.settings.hostNetworkOnly }

// Masquerade makes connections of pods that leave the machine get its address, or not.
func (r *Runtime) Masquerade(ctx context.Context, on bool) error {
	r.networks.Lock()
	defer r.networks.Unlock()
	iptables := r.settings.Programs.IPTables
	if iptables == "" || r.settings.hostNetworkOnly || r.masquerade != nil && *r.masquerade == on {
		return nil
	}
	ranges, err := r.settings.Ranges()
	if err != nil {
		return err
	}
	rules := masqueradeRules(r.Bridge(), ranges)
	if on {
		_, err = addRules(ctx, iptables, rules)
	} else {
		err = removeRules(ctx, iptables, rules)
	}
	if err != nil {
		return fmt.Errorf("set the addresses with which connections of pods leave the machine: %w", err)
	}
	r.masquerade = &on
	return nil
}

// EnsureRules adds the iptables rules of pods that other programs have removed, such as
// iptables-services at its restart, and reports whether it has added any.
func (r *Runtime) EnsureRules(ctx context.Context) (added bool, err error) {
	r.networks.Lock()
	defer r.networks.Unlock()
	iptables := r.settings.Programs.IPTables
	if iptables == "" || r.settings.hostNetworkOnly {
		return false, nil
	}
	ranges, err := r.settings.Ranges()
	if err != nil {
		return false, err
	}
	return addRules(ctx, iptables, r.rules(r.settings.Config, ranges))
}

// rules returns the iptables rules of pods with addresses of some ranges.
func (r *Runtime) rules(config Config, ranges []string) []rule {
	rules := forwardRules(config.bridge(), ranges)
	if ptr.Deref(r.masquerade, !config.PodNetwork) {
		rules = append(rules, masqueradeRules(config.bridge(), ranges)...)
	}
	if config.ServiceProxy {
		rules = append(rules, serviceRules(config.bridge(), ranges)...)
	}
	return rules
}

// Bridge returns the name of the interface to which pods are connected.
func (r *Runtime) Bridge() string { return r.settings.bridge() }

// PodRanges returns the address ranges of pods.
func (r *Runtime) PodRanges() ([]string, error) { return r.settings.Ranges() }

// Close releases containerd, which keeps running.
func (r *Runtime) Close() {
	r.letGo()
	r.kept.Wait()
	r.process.forget()
	r.unlock()
}

// Stop stops containerd. Its pods keep running, and the next containerd takes them
// over.
func (r *Runtime) Stop(ctx context.Context) error {
	r.letGo()
	r.kept.Wait()
	defer r.unlock()
	return r.process.stop(ctx)
}

// unlock lets another containerd use the bridge.
func (r *Runtime) unlock() {
	if r.bridge != nil {
		_ = r.bridge.Close() // a socket that nothing was sent to
	}
}

// network writes the CNI configuration, which containerd reloads by itself, and
// adds the iptables rules.
func (r *Runtime) network(ctx context.Context, config Config) (warnings []string, err error) {
	r.networks.Lock()
	defer r.networks.Unlock()
	before, after, err := config.writeNetwork(r.mtu)
	if err != nil {
		return nil, fmt.Errorf("configure the network of pods: %w", err)
	}
	if r.settings.hostNetworkOnly {
		return []string{"the capability CAP_NET_ADMIN is missing: only pods with hostNetwork run here, services have no proxy, network policies are not enforced, and there is no network of pods"}, nil
	}
	if !config.hasHostPorts() {
		warnings = append(warnings, "iptables or the CNI plugin portmap is missing: pods have no host ports")
	}
	iptables := config.Programs.IPTables
	machine, err := conflict.Read(ctx, iptables, slices.ContainsFunc(after, isIPv6))
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to look for other programs that interfere with the network of pods")
	}
	warnings = append(warnings, conflict.Find(machine, conflict.Pods{Bridge: config.bridge(), Ranges: after})...)
	if iptables == "" {
		return append(warnings, "iptables is missing: pods do not reach other machines (on Debian and Ubuntu: apt-get install iptables)"), nil
	}
	rules := r.rules(config, after)
	recorded := config.recordTables(rules)
	_, err = addRules(ctx, iptables, rules)
	// Connections go on, so what both have stays, and the rest is removed afterwards.
	if err = errors.Join(recorded, err, removeRules(ctx, iptables, former(config, before, after, rules))); err != nil {
		warnings = append(warnings, fmt.Sprintf("pods do not reach other machines: %v", err))
	}
	return warnings, nil
}

// former returns the rules of other ranges and settings that are not among those of now. Whether
// connections are masqueraded is decided by [Runtime.Masquerade].
func former(config Config, before, after []string, now []rule) []rule {
	bridge := config.bridge()
	old := serviceRules(bridge, after)
	if !slices.Equal(before, after) {
		old = slices.Concat(old, forwardRules(bridge, before), masqueradeRules(bridge, before), serviceRules(bridge, before))
	}
	return slices.DeleteFunc(old, func(r rule) bool { return slices.ContainsFunc(now, r.equal) })
}

// adopt adopts a running containerd, if there is one and it is suitable.
func (r *Runtime) adopt(ctx context.Context, changed bool) error {
	running, heard, err := r.settings.find()
	if running == nil || err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	reason := "its configuration has changed"
	switch {
	case !heard:
		reason = "nothing listens at " + r.settings.socket()
	case !changed:
		version, err := r.awaitReady(ctx, running, adoptTimeout)
		switch {
		case err == nil && version == r.Version:
			r.process, r.Adopted = running, true
			return nil
		case ctx.Err() != nil:
			running.forget()
			return ctx.Err()
		case err != nil:
			reason = err.Error()
		default:
			reason = "it is of version " + version
		}
	}
	logger.Info("Restarting containerd; running pods are kept", "pid", running.pid, "reason", reason)
	return running.stop(ctx)
}

// launch starts containerd and waits until it is ready. The process is nil if it
// could not be started.
func (r *Runtime) launch(ctx context.Context) (*process, error) {
	started, err := r.settings.start()
	if err != nil {
		return nil, err
	}
	if _, err := r.awaitReady(ctx, started, readyTimeout); err != nil {
		return started, fmt.Errorf("containerd failed to start: %w%s", err, endOfLog(r.LogFile))
	}
	return started, nil
}

// abandon stops a containerd that has not become ready.
func (r *Runtime) abandon(ctx context.Context) {
	if r.process == nil {
		return
	}
	if err := r.process.stop(context.WithoutCancel(ctx)); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to stop containerd", "pid", r.process.pid)
	}
}

// keep restarts containerd whenever it exits and limits the size of its log, until ctx is
// done. A containerd that is starting then is kept.
func (r *Runtime) keep(ctx context.Context) {
	logger, clock := klog.FromContext(ctx), r.settings.clock()
	delay := minBackOff
	for {
		began := clock.Now()
		if err := r.awaitExit(ctx); err != nil {
			return
		}
		if clock.Since(began) >= steady {
			delay = minBackOff
		}
		r.process.forget()
		logger.Error(nil, "Containerd exited, will restart it", "pid", r.process.pid, "after", delay, "log", r.LogFile)
		for ready := false; !ready; delay = min(2*delay, maxBackOff) {
			select {
			case <-ctx.Done():
				return
			case <-clock.After(delay):
			}
			next, err := r.launch(ctx)
			if next != nil {
				r.process = next
			}
			switch {
			case err == nil:
				ready = true
			case ctx.Err() != nil:
				return
			default:
				logger.Error(err, "Failed to restart containerd, will retry", "retryAfter", min(2*delay, maxBackOff))
				if next != nil {
					r.abandon(ctx)
				}
			}
		}
	}
}

// awaitExit waits until containerd exits, and limits the size of its log meanwhile. It returns
// an error when ctx is done.
func (r *Runtime) awaitExit(ctx context.Context) error {
	tick := r.settings.clock().NewTicker(logInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.process.ended:
			return nil
		case <-tick.C():
			if _, err := limitLog(r.LogFile); err != nil {
				klog.FromContext(ctx).Error(err, "Failed to limit the size of containerd's log, will retry", "log", r.LogFile)
			}
		}
	}
}

// awaitReady waits until CRI answers, and returns the version of containerd.
func (r *Runtime) awaitReady(ctx context.Context, p *process, timeout time.Duration) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it has not answered within %s", timeout))
	defer cancel()
	tick := r.settings.clock().NewTicker(readyPoll)
	defer tick.Stop()
	for {
		version, err := askCRI(ctx, r.settings.socket())
		if err == nil {
			v, err := parseVersion(version)
			return v.text, err
		}
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-p.ended:
			return "", errors.New("it has ended at once")
		case <-tick.C():
		}
	}
}

// askCRI returns the version of the runtime at a socket.
func askCRI(ctx context.Context, socket string) (string, error) {
	// Without this check gRPC would log that there is no socket yet.
	probe, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return "", err
	}
	probe.Close()
	conn, err := dial("unix://" + socket)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	version, err := runtimeapi.NewRuntimeServiceClient(conn).Version(ctx, &runtimeapi.VersionRequest{})
	return version.GetRuntimeVersion(), err
}

func dial(endpoint string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("reach containerd at %s: %w", endpoint, err)
	}
	return conn, nil
}
