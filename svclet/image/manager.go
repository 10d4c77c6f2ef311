package image

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/image/credentials"
	"svc.dev/svc/svclet/pod"
)

// Runtime is CRI's image service.
type Runtime interface {
	// ImageStatus gives nil if the image is not there.
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
	PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error)
	ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error)
}

// Recorder takes the events of pulls.
type Recorder interface {
	Event(*corev1.Pod, pod.Event)
}

// Credentials knows logins for images, by repository.
type Credentials interface {
	Lookup(ctx context.Context, repository string) []credentials.Login
}

// Options of a [Manager].
type Options struct {
	Runtime  Runtime
	Recorder Recorder
	// Credentials are the node's own, tried after a pod's pull secrets, in this
	// order.
	Credentials []Credentials
	// MaxParallelPulls is how many images are pulled at once; less than 1 is any
	// number. Serialized pulls are one at once.
	MaxParallelPulls int
	// QPS bounds how many pulls begin in a second, Burst how many may begin at
	// once. A pull beyond them fails. A QPS of 0 is no bound.
	QPS   float32
	Burst int
	// MaxListed is how many images [Manager.List] tells of; less than 0 is all.
	MaxListed int
	// Clock is the time; the real one by default.
	Clock clock.Clock
}

// Manager pulls and lists images.
type Manager struct {
	options Options
	limiter flowcontrol.PassiveRateLimiter
	// slots has room for as many pulls as may run at once; nil has room for all.
	slots   chan struct{}
	metrics *metrics
	list    list

	mu    sync.Mutex
	pulls map[pullKey]*pull
}

// New returns a manager. It has nothing of its own that runs.
func New(o Options) *Manager {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	m := &Manager{options: o, metrics: newMetrics(), pulls: map[pullKey]*pull{}}
	if o.QPS > 0 {
		m.limiter = flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(o.QPS, o.Burst, o.Clock)
	}
	if o.MaxParallelPulls > 0 {
		m.slots = make(chan struct{}, o.MaxParallelPulls)
	}
	return m
}

// Reasons why an image is not there, as the status of a container that waits
// for it shows them.
const (
	InvalidImageName = "InvalidImageName"
	ImageInspect     = "ImageInspectError"
	NeverPull        = "ErrImageNeverPull"
	PullFailed       = "ErrImagePull"
)

// Ensure makes sure that the image of a container is on the node, as its pull
// policy says, and returns the runtime's reference to it. The secrets are the
// pod's pull secrets. An error comes with the reason that the container's
// status shows, and its text is the message there.
func (m *Manager) Ensure(ctx context.Context, p *corev1.Pod, c *corev1.Container, secrets []corev1.Secret) (ref, reason string, err error) {
	ref, reason, err = m.ensure(ctx, request{pod: p, container: c.Name, image: c.Image, policy: c.ImagePullPolicy, secrets: secrets})
	if err != nil && ctx.Err() == nil {
		m.options.Recorder.Event(p, pod.Event{Type: corev1.EventTypeWarning, Reason: "Failed", Message: "Error: " + reason, Container: c.Name})
	}
	return ref, reason, err
}

// EnsureVolume is Ensure for a volume that is an image.
func (m *Manager) EnsureVolume(ctx context.Context, p *corev1.Pod, v *corev1.ImageVolumeSource, secrets []corev1.Secret) (ref, reason string, err error) {
	return m.ensure(ctx, request{pod: p, image: v.Reference, policy: v.PullPolicy, secrets: secrets})
}

// request is what somebody wants of an image.
type request struct {
	pod *corev1.Pod
	// container is empty if it is for a volume.
	container string
	image     string
	policy    corev1.PullPolicy
	secrets   []corev1.Secret
}

func (m *Manager) ensure(ctx context.Context, r request) (ref, reason string, err error) {
	present, pulled := unasked, unasked
	defer func() { m.metrics.ensured(r.policy, present, pulled) }()

	image, err := parseName(r.image)
	if err != nil {
		return m.refuse(ctx, r, InvalidImageName, "InspectFailed", fmt.Errorf("Failed to apply default image tag %q: %w", r.image, err)) //nolint:staticcheck // The message is kubelet's.
	}
	spec := &runtimeapi.ImageSpec{Image: image.full, Annotations: r.pod.Annotations}
	if r.policy != corev1.PullAlways {
		found, err := m.options.Runtime.ImageStatus(ctx, spec)
		if err != nil {
			return m.refuse(ctx, r, ImageInspect, "InspectFailed", fmt.Errorf("Failed to inspect image %q: %w", r.image, ownWords(err))) //nolint:staticcheck // The message is kubelet's.
		}
		ref = found.GetId()
		present = answerOf(ref != "")
	}
	switch {
	case ref != "":
		pulled = answerOf(false)
		m.event(r, corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", r.image))
		return ref, "", nil
	case r.policy == corev1.PullNever:
		return m.refuse(ctx, r, NeverPull, NeverPull, fmt.Errorf("Container image %q is not present with pull policy of Never", r.image)) //nolint:staticcheck // The message is kubelet's.
	}
	pulled = answerOf(true)
	logins, err := m.logins(ctx, image.repository, r.secrets)
	if err != nil {
		return m.refuse(ctx, r, PullFailed, "Failed", fmt.Errorf("Failed to pull image %q: %w", r.image, err)) //nolint:staticcheck // The message is kubelet's.
	}
	return m.pull(ctx, r, spec, logins)
}

// refuse records why there is no image, unless nobody asks any more.
func (m *Manager) refuse(ctx context.Context, r request, reason, event string, err error) (string, string, error) {
	if ctx.Err() == nil {
		m.event(r, corev1.EventTypeWarning, event, err.Error())
	}
	return "", reason, err
}

func (m *Manager) event(r request, kind, reason, message string) {
	m.options.Recorder.Event(r.pod, pod.Event{Type: kind, Reason: reason, Message: message, Container: r.container})
}

// logins are those to try for a repository: those of the pod's secrets, then
// the node's.
func (m *Manager) logins(ctx context.Context, repository string, secrets []corev1.Secret) ([]credentials.Login, error) {
	keyring, err := credentials.FromSecrets(secrets)
	if err != nil {
		return nil, err
	}
	logins := keyring.Lookup(repository)
	for _, each := range m.options.Credentials {
		logins = append(logins, each.Lookup(ctx, repository)...)
	}
	return logins, nil
}

// pull pulls an image, or waits for somebody's pull of it.
func (m *Manager) pull(ctx context.Context, r request, spec *runtimeapi.ImageSpec, logins []credentials.Login) (ref, reason string, err error) {
	m.event(r, corev1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", r.image))
	began := m.options.Clock.Now()
	result, err := m.share(ctx, keyOf(r.pod.Namespace, spec, logins), func(ctx context.Context) result {
		return m.pullNow(ctx, spec, logins, sandboxOf(r.pod))
	})
	if err != nil {
		return "", PullFailed, fmt.Errorf("pull of image %q given up: %w", r.image, err)
	}
	if result.err != nil {
		m.event(r, corev1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: %v", r.image, result.err))
		reason, err := explain(r.image, result.err)
		return "", reason, err
	}
	took := m.options.Clock.Since(began).Truncate(time.Millisecond)
	m.event(r, corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %v bytes.",
		r.image, result.took.Truncate(time.Millisecond), took, result.size))
	m.metrics.pulled(result.size, took)
	return result.ref, "", nil
}

// explain finds the reason and message of a pull that has failed. CRI knows two
// reasons of its own, which begin the runtime's message.
func explain(image string, err error) (reason string, _ error) {
	for _, known := range []struct {
		error
		because string
	}{
		{crierrors.ErrRegistryUnavailable, "the registry is unavailable"},
		{crierrors.ErrSignatureValidationFailed, "the signature validation failed"},
	} {
		if detail, ok := strings.CutPrefix(err.Error(), known.Error()); ok {
			return known.Error(), fmt.Errorf("image pull failed for %s because %s%s", image, known.because, detail)
		}
	}
	return PullFailed, err
}

var errTooOften = errors.New("pull QPS exceeded")

// pullNow pulls an image with each login in turn, until one will do.
func (m *Manager) pullNow(ctx context.Context, spec *runtimeapi.ImageSpec, logins []credentials.Login, sandbox *runtimeapi.PodSandboxConfig) result {
	if m.slots != nil {
		select {
		case m.slots <- struct{}{}:
			defer func() { <-m.slots }()
		case <-ctx.Done():
			return result{err: ctx.Err()}
		}
	}
	if m.limiter != nil && !m.limiter.TryAccept() {
		return result{err: errTooOften}
	}
	began := m.options.Clock.Now()
	ref, err := m.tryLogins(ctx, spec, logins, sandbox)
	if err != nil {
		return result{err: err}
	}
	m.list.forget()
	r := result{ref: ref}
	found, err := m.options.Runtime.ImageStatus(ctx, spec)
	if err != nil {
		klog.V(2).InfoS("Failed to get the size of the pulled image", "image", spec.Image, "err", err)
	}
	r.size = found.GetSize()
	r.took = m.options.Clock.Since(began)
	return r
}
