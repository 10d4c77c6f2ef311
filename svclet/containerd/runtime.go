package containerd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
)

const (
	// readyTimeout bounds the time from the start of containerd to its first
	// answer. It reads what it knows of all pods in between.
	readyTimeout = 2 * time.Minute
	// adoptTimeout bounds the wait for an answer of one that runs already.
	adoptTimeout = 20 * time.Second
	readyPoll    = 20 * time.Millisecond

	// minBackOff and maxBackOff bound the time from the end of containerd to its
	// next start. It doubles for as long as containerd lives less than steady.
	minBackOff = 100 * time.Millisecond
	maxBackOff = 30 * time.Second
	steady     = time.Minute
)

// Runtime is a running containerd.
type Runtime struct {
	// Endpoint is where it serves CRI and its own services: a URL with the
	// scheme unix. It stays the same when containerd is started again.
	Endpoint string
	// Version is that of the program.
	Version string
	// LogFile is where containerd logs; one older file is kept beside it.
	LogFile string
	// Warnings are sentences about what pods lack on this machine.
	Warnings []string

	settings settings
	networks sync.Mutex // one change of the network at a time
	process  *process   // that of keep, until that has returned
	letGo    context.CancelFunc
	kept     sync.WaitGroup
}

// Start returns when CRI answers. The one that runs already at the same
// directory is adopted, if it was started with the same configuration, and
// otherwise replaced; pods live on through that. From then on containerd is
// started again whenever it ends.
func Start(ctx context.Context, config Config) (*Runtime, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	r := &Runtime{Endpoint: config.Endpoint(), LogFile: config.logFile()}
	var err error
	if r.settings, err = prepare(ctx, config); err != nil {
		return nil, err
	}
	r.Version = r.settings.version.text
	if r.Warnings, err = r.network(ctx, config); err != nil {
		return nil, err
	}
	content, err := r.settings.toml()
	if err != nil {
		return nil, err
	}
	changed, err := replaceFile(config.configFile(), content)
	if err != nil {
		return nil, fmt.Errorf("configure containerd: %w", err)
	}
	if err := r.adopt(ctx, changed); err != nil {
		return nil, err
	}
	if r.process == nil {
		if r.process, err = r.launch(ctx); err != nil {
			r.abandon(ctx)
			return nil, err
		}
	}
	keeping, letGo := context.WithCancel(context.WithoutCancel(ctx))
	r.letGo = letGo
	r.kept.Go(func() { r.keep(keeping) })
	return r, nil
}

// SetPodCIDRs changes the addresses that pods get from now on, also after
// containerd and the agent have been started anew. It returns sentences about
// what they lack.
func (r *Runtime) SetPodCIDRs(ctx context.Context, cidrs []string) (warnings []string, err error) {
	config := r.settings.Config
	config.PodCIDRs = cidrs
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if err := config.assign(cidrs); err != nil {
		return nil, fmt.Errorf("keep which addresses the cluster has given: %w", err)
	}
	return r.network(ctx, config)
}

// Close lets go of containerd, which runs on.
func (r *Runtime) Close() {
	r.letGo()
	r.kept.Wait()
	r.process.forget()
}

// Stop ends containerd. Its pods go on without it, and are under the care of
// the next one that is started.
func (r *Runtime) Stop(ctx context.Context) error {
	r.letGo()
	r.kept.Wait()
	return r.process.stop(ctx)
}

// network writes the CNI configuration, which containerd reads again by itself,
// and opens the way out of the machine.
func (r *Runtime) network(ctx context.Context, config Config) (warnings []string, err error) {
	r.networks.Lock()
	defer r.networks.Unlock()
	before, after, err := config.writeNetwork()
	if err != nil {
		return nil, fmt.Errorf("configure the network of pods: %w", err)
	}
	if !config.hasHostPorts() {
		warnings = append(warnings, "iptables or the CNI plugin portmap is missing: pods have no host ports")
	}
	iptables := config.Programs.IPTables
	if iptables == "" {
		return append(warnings, "iptables is missing: pods do not reach other machines (on Debian and Ubuntu: apt-get install iptables)"), nil
	}
	if !slices.Equal(before, after) {
		err = closeWays(ctx, iptables, config.bridge(), before)
	}
	if err = errors.Join(err, openWays(ctx, iptables, config.bridge(), after)); err != nil {
		warnings = append(warnings, fmt.Sprintf("pods do not reach other machines: %v", err))
	}
	return warnings, nil
}

// adopt takes over the containerd that runs already, if there is one, and it is
// fit to be.
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
			r.process = running
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

// launch starts containerd and waits until it is ready. The process is nil if
// there is none.
func (r *Runtime) launch(ctx context.Context) (*process, error) {
	started, err := r.settings.start()
	if err != nil {
		return nil, err
	}
	if _, err := r.awaitReady(ctx, started, readyTimeout); err != nil {
		return started, fmt.Errorf("containerd does not come up: %w%s", err, lastWords(r.LogFile))
	}
	return started, nil
}

// abandon stops a containerd that has not become ready, of which nobody else
// would know.
func (r *Runtime) abandon(ctx context.Context) {
	if r.process == nil {
		return
	}
	if err := r.process.stop(context.WithoutCancel(ctx)); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to stop containerd", "pid", r.process.pid)
	}
}

// keep starts containerd again whenever it ends, until ctx is done. One that is
// about to become ready then stays.
func (r *Runtime) keep(ctx context.Context) {
	logger := klog.FromContext(ctx)
	delay := minBackOff
	for {
		began := time.Now()
		select {
		case <-ctx.Done():
			return
		case <-r.process.ended:
		}
		if time.Since(began) >= steady {
			delay = minBackOff
		}
		r.process.forget()
		logger.Error(nil, "Containerd exited, will restart it", "pid", r.process.pid, "after", delay, "log", r.LogFile)
		for ready := false; !ready; delay = min(2*delay, maxBackOff) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(delay):
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

// awaitReady returns the version of containerd when CRI answers.
func (r *Runtime) awaitReady(ctx context.Context, p *process, timeout time.Duration) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it has not answered within %s", timeout))
	defer cancel()
	tick := time.NewTicker(readyPoll)
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
		case <-tick.C:
		}
	}
}

// askCRI returns the version of the runtime at a socket.
func askCRI(ctx context.Context, socket string) (string, error) {
	// gRPC would log that there is none yet.
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
