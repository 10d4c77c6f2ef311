package image

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/svclet/image/credentials"
)

// pull is a pull that is in flight or waits for a slot.
type pull struct {
	waiters int
	cancel  context.CancelFunc
	done    chan struct{}
	// result is valid once done is closed.
	result result
}

// result is the result of a pull.
type result struct {
	ref  string
	size uint64
	// took is its duration without the wait for a slot.
	took time.Duration
	err  error
}

// pullKey identifies pulls that can be shared. Runtimes may have policies that
// depend on the namespace or on annotations.
type pullKey struct {
	namespace, image string
	rest             [sha256.Size]byte
}

func keyOf(namespace string, spec *runtimeapi.ImageSpec, logins []credentials.Login) pullKey {
	hash := sha256.New()
	add := func(s string) {
		hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		hash.Write([]byte(s))
	}
	add(strconv.Itoa(len(logins)))
	for _, login := range logins {
		add(login.Username)
		add(login.Password)
	}
	for _, key := range slices.Sorted(maps.Keys(spec.Annotations)) {
		add(key)
		add(spec.Annotations[key])
	}
	key := pullKey{namespace: namespace, image: spec.Image}
	hash.Sum(key.rest[:0])
	return key
}

// share waits for the pull with this key, and starts it if there is none. It
// returns the context's error if the context ends; the pull is cancelled when its
// last waiter leaves.
func (m *Manager) share(ctx context.Context, key pullKey, run func(context.Context) result) (result, error) {
	m.mu.Lock()
	p := m.pulls[key]
	if p == nil {
		var pullCtx context.Context
		p = &pull{done: make(chan struct{})}
		pullCtx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
		m.pulls[key] = p
		go func() {
			defer close(p.done)
			p.result = run(pullCtx)
			m.forget(key, p)
		}()
	}
	p.waiters++
	m.mu.Unlock()

	select {
	case <-p.done:
		return p.result, nil
	case <-ctx.Done():
	}
	if m.leave(key, p) {
		<-p.done
	}
	return result{}, ctx.Err()
}

// leave reports whether no caller waits for a pull any more, and then cancels it.
func (m *Manager) leave(key pullKey, p *pull) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.waiters--; p.waiters > 0 {
		return false
	}
	p.cancel()
	if m.pulls[key] == p {
		delete(m.pulls, key)
	}
	return true
}

// forget removes a pull, so that later callers start a new one.
func (m *Manager) forget(key pullKey, p *pull) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.cancel()
	if m.pulls[key] == p {
		delete(m.pulls, key)
	}
}

// tryLogins pulls an image with each login in turn until one succeeds, or without
// a login if there is none. It returns the one that succeeded.
func (m *Manager) tryLogins(ctx context.Context, spec *runtimeapi.ImageSpec, logins []credentials.Login, sandbox *runtimeapi.PodSandboxConfig) (string, *credentials.Login, error) {
	if len(logins) == 0 {
		ref, err := m.tryLogin(ctx, spec, nil, sandbox)
		return ref, nil, err
	}
	var failed []error
	for _, login := range logins {
		ref, err := m.tryLogin(ctx, spec, &runtimeapi.AuthConfig{Username: login.Username, Password: login.Password}, sandbox)
		if err == nil {
			return ref, &login, nil
		}
		failed = append(failed, err)
	}
	return "", nil, utilerrors.NewAggregate(failed)
}

func (m *Manager) tryLogin(ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	ref, err := m.options.Runtime.PullImage(ctx, spec, auth, sandbox)
	err = withoutOperation(err)
	// The code Unknown would hide the reasons that are prefixes of messages.
	if s, ok := status.FromError(err); ok && s.Code() == codes.Unknown {
		err = errors.New(s.Message())
	}
	return ref, ExplainDamage(err)
}

// withoutOperation returns the runtime's own error without the operation and the image:
// events and statuses name the image already.
func withoutOperation(err error) error {
	var own interface {
		error
		GRPCStatus() *status.Status
	}
	if errors.As(err, &own) {
		return own
	}
	return err
}

// sandboxOf returns the sandbox configuration by which the runtime knows the pod of a
// pull.
func sandboxOf(p *corev1.Pod) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID)},
		Labels:      p.Labels,
		Annotations: p.Annotations,
	}
}
