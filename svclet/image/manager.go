package image

import (
	"cmp"
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
	"svc.dev/svc/svclet/image/records"
	"svc.dev/svc/svclet/pod"
)

// Runtime is CRI's image service.
type Runtime interface {
	// ImageStatus returns nil if the image does not exist.
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
	PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error)
	ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error)
}

// Recorder records the events of pulls.
type Recorder interface {
	Event(*corev1.Pod, pod.Event)
}

// Credentials returns logins for images, by repository.
type Credentials interface {
	Lookup(ctx context.Context, repository string) []credentials.Login
}

// Records are who may use the images of the node (package records).
type Records interface {
	// Accessible reports whether a pod may use an image without pulling it. It calls
	// logins, which returns the pod's, only if that depends on them.
	Accessible(image records.Image, logins func() ([]credentials.Login, error)) (bool, error)
	// Begin is called before a pull; Failed or Pulled after it, with the login that
	// was used, if any.
	Begin(image string) error
	Failed(image string)
	Pulled(image records.Image, login *credentials.Login)
}

// Options configure a [Manager].
type Options struct {
	Runtime  Runtime
	Recorder Recorder
	// Credentials are the node's own, tried in order after a pod's pull secrets.
	Credentials []Credentials
	// Records, if not nil, decide which pods may use images that are present.
	Records Records
	// MaxParallelPulls bounds the parallel pulls; less than 1 means no limit.
	// Serialized pulls have the limit 1.
	MaxParallelPulls int
	// QPS bounds the pulls per second, Burst those that may start at once. A pull over
	// the limit fails. A QPS of 0 means no limit.
	QPS   float32
	Burst int
	// MaxListed bounds the images of [Manager.List]; less than 0 means all.
	MaxListed int
	// Clock is the system clock by default.
	Clock clock.Clock
}

// Manager pulls and lists images.
type Manager struct {
	options Options
	limiter flowcontrol.PassiveRateLimiter
	// slots has one slot for each parallel pull; nil means no limit.
	slots   chan struct{}
	metrics *metrics
	list    list

	mu    sync.Mutex
	pulls map[pullKey]*pull
}

// New returns a manager. It starts no goroutines.
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

// The reasons of waiting states in the status of a container without its image.
const (
	InvalidImageName = "InvalidImageName"
	ImageInspect     = "ImageInspectError"
	NeverPull        = "ErrImageNeverPull"
	PullFailed       = "ErrImagePull"
)

// Ensure makes the image of a container available according to its pull policy,
// and returns the runtime's reference to it. secrets are the pod's pull secrets.
// With an error it returns the reason for the container's status; the error's text
// is the message.
func (m *Manager) Ensure(ctx context.Context, p *corev1.Pod, c *corev1.Container, secrets []corev1.Secret) (ref, reason string, err error) {
	ref, reason, err = m.ensure(ctx, request{pod: p, container: c.Name, image: c.Image, policy: c.ImagePullPolicy, secrets: secrets})
	if err != nil && ctx.Err() == nil {
		m.options.Recorder.Event(p, pod.Event{Type: corev1.EventTypeWarning, Reason: "Failed", Message: "Error: " + reason, Container: c.Name})
	}
	return ref, reason, err
}

// EnsureVolume is Ensure for an image volume.
func (m *Manager) EnsureVolume(ctx context.Context, p *corev1.Pod, v *corev1.ImageVolumeSource, secrets []corev1.Secret) (ref, reason string, err error) {
	return m.ensure(ctx, request{pod: p, image: v.Reference, policy: v.PullPolicy, secrets: secrets})
}

// request is a request for an image.
type request struct {
	pod *corev1.Pod
	// container is empty for a volume.
	container string
	image     string
	policy    corev1.PullPolicy
	secrets   []corev1.Secret
}

func (m *Manager) ensure(ctx context.Context, r request) (ref, reason string, err error) {
	present, pulled := notChecked, notChecked
	defer func() { m.metrics.ensured(r.policy, present, pulled) }()

	image, err := parseName(r.image)
	if err != nil {
		return m.refuse(ctx, r, InvalidImageName, "InspectFailed", fmt.Errorf("Failed to apply default image tag %q: %w", r.image, err)) //nolint:staticcheck // The message is kubelet's.
	}
	spec := &runtimeapi.ImageSpec{Image: image.full, Annotations: r.pod.Annotations}
	if r.policy != corev1.PullAlways {
		found, err := m.options.Runtime.ImageStatus(ctx, spec)
		if err != nil {
			return m.refuse(ctx, r, ImageInspect, "InspectFailed", fmt.Errorf("Failed to inspect image %q: %w", r.image, withoutOperation(err))) //nolint:staticcheck // The message is kubelet's.
		}
		ref = found.GetId()
		present = answerOf(ref != "")
	}
	accessible, err := m.accessible(image, ref, r.secrets)
	if err != nil {
		return m.refuse(ctx, r, PullFailed, "Failed", fmt.Errorf("Failed to pull image %q: %w", r.image, err)) //nolint:staticcheck // The message is kubelet's.
	}
	switch {
	case accessible:
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
	return m.pull(ctx, r, image, spec, logins)
}

// accessible reports whether an image is present, and a pod with these pull secrets may
// use it. ref is empty if it is not present.
func (m *Manager) accessible(image name, ref string, secrets []corev1.Secret) (bool, error) {
	if ref == "" || m.options.Records == nil {
		return ref != "", nil
	}
	return m.options.Records.Accessible(records.Image{Name: image.full, Repository: image.repository, Ref: ref}, func() ([]credentials.Login, error) {
		return loginsOf(secrets, image.repository)
	})
}

// loginsOf returns the logins of a pod's pull secrets for a repository.
func loginsOf(secrets []corev1.Secret, repository string) ([]credentials.Login, error) {
	keyring, err := credentials.FromSecrets(secrets)
	if err != nil {
		return nil, err
	}
	return keyring.Lookup(repository), nil
}

// refuse records the event of a failure, unless the caller's context is done.
func (m *Manager) refuse(ctx context.Context, r request, reason, event string, err error) (string, string, error) {
	if ctx.Err() == nil {
		m.event(r, corev1.EventTypeWarning, event, err.Error())
	}
	return "", reason, err
}

func (m *Manager) event(r request, kind, reason, message string) {
	m.options.Recorder.Event(r.pod, pod.Event{Type: kind, Reason: reason, Message: message, Container: r.container})
}

// logins returns the logins to try for a repository: those of the pod's secrets,
// then the node's.
func (m *Manager) logins(ctx context.Context, repository string, secrets []corev1.Secret) ([]credentials.Login, error) {
	logins, err := loginsOf(secrets, repository)
	if err != nil {
		return nil, err
	}
	for _, each := range m.options.Credentials {
		logins = append(logins, each.Lookup(ctx, repository)...)
	}
	return logins, nil
}

// pull pulls an image, or waits for a pull of it in flight.
func (m *Manager) pull(ctx context.Context, r request, image name, spec *runtimeapi.ImageSpec, logins []credentials.Login) (ref, reason string, err error) {
	m.event(r, corev1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", r.image))
	began := m.options.Clock.Now()
	result, err := m.share(ctx, keyOf(r.pod.Namespace, spec, logins), func(ctx context.Context) result {
		return m.pullNow(ctx, image, spec, logins, sandboxOf(r.pod))
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

// explain returns the reason and the message of a failed pull. CRI defines two
// reasons, which are prefixes of the runtime's message.
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

// pullNow pulls an image with each login in turn until one succeeds.
func (m *Manager) pullNow(ctx context.Context, image name, spec *runtimeapi.ImageSpec, logins []credentials.Login, sandbox *runtimeapi.PodSandboxConfig) result {
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
	if m.options.Records != nil {
		if err := m.options.Records.Begin(image.full); err != nil {
			return result{err: err}
		}
	}
	began := m.options.Clock.Now()
	ref, login, err := m.tryLogins(ctx, spec, logins, sandbox)
	if err != nil {
		if m.options.Records != nil {
			m.options.Records.Failed(image.full)
		}
		return result{err: err}
	}
	m.list.forget()
	r := result{ref: ref}
	found, err := m.options.Runtime.ImageStatus(ctx, spec)
	if err != nil {
		klog.V(2).InfoS("Failed to get the size of the pulled image", "image", spec.Image, "err", err)
	}
	if m.options.Records != nil {
		// Later pods find the image by the ID in its status, which some runtimes do not
		// return from a pull.
		pulled := records.Image{Name: image.full, Repository: image.repository, Ref: cmp.Or(found.GetId(), ref)}
		m.options.Records.Pulled(pulled, login)
	}
	r.size = found.GetSize()
	r.took = m.options.Clock.Since(began)
	return r
}
