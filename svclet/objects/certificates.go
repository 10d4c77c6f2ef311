package objects

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/svclet/podcertificate"
)

// certificates are those of registered pods, and the watch of the node's requests for them,
// which runs while a pod has a volume with a certificate.
type certificates struct {
	byKey    map[certificateKey]*certificate
	pods     map[types.UID]bool
	requests *requests
}

// certificateKey identifies a source of a projected volume.
type certificateKey struct {
	pod    types.UID
	volume string
	source int
}

type certificate struct {
	podcertificate.Certificate
	// news is closed when the state of the request in progress is final or it is deleted.
	news chan struct{}
}

// hasCertificates reports whether a volume of the pod has a certificate.
func hasCertificates(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		projected := pod.Spec.Volumes[i].Projected
		if projected != nil && slices.ContainsFunc(projected.Sources, func(s corev1.VolumeProjection) bool { return s.PodCertificate != nil }) {
			return true
		}
	}
	return false
}

// registerCertificates starts the watch for the first pod that needs it. The caller holds
// mutex.
func (s *Store) registerCertificates(pod *corev1.Pod) {
	if !hasCertificates(pod) {
		return
	}
	s.certificates.pods[pod.UID] = true
	if s.certificates.requests != nil {
		return
	}
	r := &requests{store: s, answer: newAnswer(), held: map[client.ObjectKey]*certificatesv1.PodCertificateRequest{}}
	s.certificates.requests = r
	var ctx context.Context
	ctx, r.stop = context.WithCancel(s.context)
	// The node authorizer requires the selector.
	f := s.follower(func() client.ObjectList { return &certificatesv1.PodCertificateRequestList{} },
		client.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", s.NodeName)})
	s.running.Go(func() { f.run(ctx, r) })
}

// forgetCertificates removes those of a pod, and ends the watch after the last pod. The
// caller holds mutex.
func (s *Store) forgetCertificates(uid types.UID) {
	delete(s.certificates.pods, uid)
	maps.DeleteFunc(s.certificates.byKey, func(key certificateKey, _ *certificate) bool { return key.pod == uid })
	if r := s.certificates.requests; r != nil && len(s.certificates.pods) == 0 {
		r.stop()
		s.certificates.requests = nil
	}
}

// PodCertificate returns the private key and the certificate chain, in PEM, of a source of
// a projected volume of a registered pod. If it is due, it requests a certificate from the
// signer, and waits for the first one until ctx is done or for a second; then the error
// says why there is none. When a certificate has been issued or refused, or a renewal is
// due, Options.Changed is called with the pod. Calls for one pod must not be concurrent.
func (s *Store) PodCertificate(ctx context.Context, pod *corev1.Pod, volume string, index int, source *corev1.PodCertificateProjection) (key, chain []byte, err error) {
	at := certificateKey{pod.UID, volume, index}
	s.mutex.Lock()
	if !s.certificates.pods[pod.UID] || s.closed {
		s.mutex.Unlock()
		return nil, nil, fmt.Errorf("pod %s/%s not registered", pod.Namespace, pod.Name)
	}
	c := s.certificates.byKey[at]
	if c == nil {
		c = &certificate{}
		s.certificates.byKey[at] = c
	}
	due := c.Due(s.Clock.Now())
	s.mutex.Unlock()
	if due {
		s.request(ctx, pod, c, source)
	}
	s.awaitNews(ctx, c)

	s.mutex.Lock()
	warnings := c.Warnings(s.Clock.Now())
	if next := c.Next(); !next.IsZero() && s.certificates.byKey[at] == c && !s.closed {
		s.arm(next)
	}
	key, chain, err = c.Credentials()
	if r := s.certificates.requests; err != nil && c.Pending() != "" && r != nil && r.answer.err != nil {
		err = fmt.Errorf("failed to sync podcertificaterequest cache: %w", r.answer.err)
	}
	s.mutex.Unlock()
	for _, w := range warnings {
		s.Warn(pod, w.Reason, w.Message)
	}
	return key, chain, err
}

// request creates a request for a certificate.
func (s *Store) request(ctx context.Context, pod *corev1.Pod, c *certificate, source *corev1.PodCertificateProjection) {
	key, created, err := s.createRequest(unlogged(ctx), pod, source)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	now := s.Clock.Now()
	if err != nil {
		c.Failed(err, now, s.Random())
		return
	}
	c.news = make(chan struct{})
	c.Requested(created, key, now, s.Random())
	// The watch may have been faster than the response.
	if r := s.certificates.requests; r != nil && r.held[client.ObjectKeyFromObject(created)] != nil {
		r.observe(c, r.held[client.ObjectKeyFromObject(created)])
	}
}

func (s *Store) createRequest(ctx context.Context, pod *corev1.Pod, source *corev1.PodCertificateProjection) (key []byte, created *certificatesv1.PodCertificateRequest, err error) {
	if pod.Spec.ServiceAccountName == "" {
		return nil, nil, errors.New("the pod names no service account, which a certificate needs: set spec.serviceAccountName")
	}
	account, node := &corev1.ServiceAccount{}, &corev1.Node{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: pod.Spec.ServiceAccountName}, account); err != nil {
		return nil, nil, fmt.Errorf("while fetching service account: %w", err)
	}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: s.NodeName}, node); err != nil {
		return nil, nil, fmt.Errorf("while fetching node: %w", err)
	}
	key, stub, err := podcertificate.NewKey(source.KeyType)
	if err != nil {
		return nil, nil, err
	}
	created = podcertificate.Request(pod, source, account, node, stub)
	if err := s.Client.Create(ctx, created); err != nil {
		return nil, nil, fmt.Errorf("while creating PodCertificateRequest for signer %q: %w", source.SignerName, err)
	}
	return key, created, nil
}

// awaitNews waits for the first certificate while its request is in progress.
func (s *Store) awaitNews(ctx context.Context, c *certificate) {
	s.mutex.Lock()
	_, _, err := c.Credentials()
	news, waits := c.news, err != nil && c.Pending() != ""
	s.mutex.Unlock()
	if !waits {
		return
	}
	timer := s.Clock.NewTimer(errorTimeout)
	defer timer.Stop()
	select {
	case <-news:
	case <-timer.C():
	case <-ctx.Done():
	case <-s.context.Done():
	}
}

// requests receives the node's requests for certificates.
type requests struct {
	store  *Store
	stop   context.CancelFunc
	answer answer
	// held are those of registered pods.
	held map[client.ObjectKey]*certificatesv1.PodCertificateRequest
}

func (r *requests) replace(list []client.Object) bool {
	r.change(func() map[types.UID]bool {
		r.answer.give()
		r.answer.err = nil
		old, pods := r.held, map[types.UID]bool{}
		r.held = make(map[client.ObjectKey]*certificatesv1.PodCertificateRequest, len(list))
		for _, o := range list {
			r.put(o.(*certificatesv1.PodCertificateRequest), pods)
		}
		for key, request := range old {
			if r.held[key] == nil {
				r.deleted(request, pods)
			}
		}
		return pods
	})
	return false
}

func (r *requests) set(o client.Object) bool {
	r.change(func() map[types.UID]bool {
		pods := map[types.UID]bool{}
		r.put(o.(*certificatesv1.PodCertificateRequest), pods)
		return pods
	})
	return false
}

func (r *requests) remove(o client.Object) {
	r.change(func() map[types.UID]bool {
		pods := map[types.UID]bool{}
		delete(r.held, client.ObjectKeyFromObject(o))
		r.deleted(o.(*certificatesv1.PodCertificateRequest), pods)
		return pods
	})
}

func (r *requests) failed(err error) {
	r.store.mutex.Lock()
	r.answer.err = err
	r.store.mutex.Unlock()
}

// change calls a function with the store's mutex, and reports the pods that it returns.
func (r *requests) change(do func() map[types.UID]bool) {
	r.store.mutex.Lock()
	r.answer.err = nil // the watch goes on
	pods := slices.Sorted(maps.Keys(do()))
	r.store.mutex.Unlock()
	if len(pods) > 0 {
		r.store.Changed(pods)
	}
}

// put keeps a request of a registered pod, and adds the pod to those of which a
// certificate is decided about.
func (r *requests) put(request *certificatesv1.PodCertificateRequest, pods map[types.UID]bool) {
	if !r.store.certificates.pods[request.Spec.PodUID] {
		return
	}
	r.held[client.ObjectKeyFromObject(request)] = request
	if c := r.of(request); c != nil && r.observe(c, request) {
		pods[request.Spec.PodUID] = true
	}
}

func (r *requests) deleted(request *certificatesv1.PodCertificateRequest, pods map[types.UID]bool) {
	if c := r.of(request); c != nil {
		c.Deleted(r.store.Clock.Now(), r.store.Random())
		close(c.news)
		pods[request.Spec.PodUID] = true
	}
}

// of returns the certificate whose request it is, or nil.
func (r *requests) of(request *certificatesv1.PodCertificateRequest) *certificate {
	for key, c := range r.store.certificates.byKey {
		if key.pod == request.Spec.PodUID && c.Pending() == request.Name {
			return c
		}
	}
	return nil
}

func (r *requests) observe(c *certificate, request *certificatesv1.PodCertificateRequest) (final bool) {
	if final = c.Observe(request, r.store.Random()); final {
		close(c.news)
	}
	return final
}
