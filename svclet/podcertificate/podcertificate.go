// Package podcertificate decides when the certificate of a pod is requested and renewed,
// and makes its key (KEP-4317).
package podcertificate

import (
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Kubelet's values.
const (
	// maxJitter is the greatest delay of a renewal, so that pods that started together
	// are not renewed together.
	maxJitter = 5 * time.Minute
	// lostAfter is when a request that no watch has shown counts as deleted.
	lostAfter = 10 * time.Minute
	// overdueAfter is how late a renewal may be without a warning.
	overdueAfter = 10 * time.Minute
)

// The back-off between requests that could not be created or were deleted doubles from
// minDelay to maxDelay, with a jitter of up to 100 %.
const (
	minDelay = time.Second
	maxDelay = 5 * time.Minute
)

// Certificate is the state of a certificate in a volume of a pod: the one that the volume
// shows, and the request for it or for the next one. The zero value is a certificate that
// is to be requested. It has no clock: the caller calls it at [Certificate.Next].
type Certificate struct {
	// key and chain, in PEM, are nil before the first certificate.
	key, chain []byte
	// refresh is when it is to be renewed; expires is its end.
	refresh, expires time.Time

	pending *pending
	// refused is why the signer will never issue it: a request is not repeated.
	refused *Warning
	// failure is why there is no request, after a number of failures. The next attempt is at
	// retry.
	failure  error
	failures int
	retry    time.Time

	warnedRefused, warnedOverdue, warnedExpired bool
}

// pending is a request in progress.
type pending struct {
	name, signer string
	key          []byte
	// seen reports whether a watch has shown it; otherwise it counts as deleted at lost.
	seen bool
	lost time.Time
}

// Warning is a warning event about the pod.
type Warning struct{ Reason, Message string }

// Due reports whether a request is to be created now.
func (c *Certificate) Due(now time.Time) bool {
	c.expire(now)
	return c.refused == nil && c.pending == nil && !now.Before(c.retry) && (c.chain == nil || !now.Before(c.refresh))
}

// expire gives up a request that no watch has shown.
func (c *Certificate) expire(now time.Time) {
	if c.pending != nil && !c.pending.seen && !now.Before(c.pending.lost) {
		c.pending = nil
	}
}

// Requested reports that a request has been created, with the private key in PEM. random
// is in [0, 1).
func (c *Certificate) Requested(r *certificatesv1.PodCertificateRequest, key []byte, now time.Time, random float64) {
	c.pending = &pending{name: r.Name, signer: r.Spec.SignerName, key: key, lost: now.Add(lostAfter + jitter(random))}
	c.failure, c.retry = nil, time.Time{}
}

// Failed reports that a request could not be created. It is tried again after a back-off.
func (c *Certificate) Failed(err error, now time.Time, random float64) {
	delay := maxDelay
	if c.failures < 9 { // minDelay doubles to more than maxDelay
		delay = min(minDelay<<c.failures, maxDelay)
	}
	c.failures++
	c.failure, c.retry = err, now.Add(delay+time.Duration(random*float64(delay)))
}

// Pending returns the name of the request in progress, or "".
func (c *Certificate) Pending() string {
	if c.pending == nil {
		return ""
	}
	return c.pending.name
}

// Deleted reports that the request in progress has been deleted. Another one is created
// after a back-off.
func (c *Certificate) Deleted(now time.Time, random float64) {
	name := c.Pending()
	c.pending = nil
	c.Failed(fmt.Errorf("PodCertificateRequest %s appears to have been deleted", name), now, random)
}

// Observe reports the state of the request in progress, and returns whether that is final:
// an issued certificate is used from now on, and a refusal stays.
func (c *Certificate) Observe(r *certificatesv1.PodCertificateRequest, random float64) (final bool) {
	c.pending.seen = true
	for _, condition := range r.Status.Conditions {
		switch condition.Type {
		case certificatesv1.PodCertificateRequestConditionTypeIssued:
			c.issued(r, random)
			return true
		case certificatesv1.PodCertificateRequestConditionTypeDenied, certificatesv1.PodCertificateRequestConditionTypeFailed:
			c.refuse(r, condition)
			return true
		}
	}
	return false
}

func (c *Certificate) issued(r *certificatesv1.PodCertificateRequest, random float64) {
	chain := clean(r.Status.CertificateChain)
	if len(chain) == 0 || r.Status.BeginRefreshAt == nil || r.Status.NotAfter == nil {
		c.refuse(r, metav1.Condition{Type: certificatesv1.PodCertificateRequestConditionTypeFailed, Reason: "InvalidStatus", Message: "it was issued without a certificate or its times"})
		return
	}
	*c = Certificate{
		key: c.pending.key, chain: chain,
		refresh: r.Status.BeginRefreshAt.Add(jitter(random)), expires: r.Status.NotAfter.Time,
	}
}

func (c *Certificate) refuse(r *certificatesv1.PodCertificateRequest, condition metav1.Condition) {
	c.pending = nil
	verb := "failed"
	if condition.Type == certificatesv1.PodCertificateRequestConditionTypeDenied {
		verb = "was denied"
	}
	c.refused = &Warning{condition.Type, fmt.Sprintf("PodCertificateRequest %s/%s for signer %q %s, reason=%q, message=%q",
		r.Namespace, r.Name, r.Spec.SignerName, verb, condition.Reason, condition.Message)}
}

func jitter(random float64) time.Duration { return time.Duration(random * float64(maxJitter)) }

// Credentials returns the private key and the certificate chain, in PEM, that the volume
// shows. Before the first certificate, and after a refusal, the error says why there is
// none: like kubelet's, a volume whose renewal was refused stays as it is.
func (c *Certificate) Credentials() (key, chain []byte, err error) {
	switch {
	case c.refused != nil:
		return nil, nil, errors.New(c.refused.Message)
	case c.chain != nil:
		return c.key, c.chain, nil
	case c.failure != nil:
		return nil, nil, c.failure
	case c.pending != nil:
		return nil, nil, fmt.Errorf("credential bundle is not issued yet: PodCertificateRequest %s for signer %q is pending", c.pending.name, c.pending.signer)
	}
	return nil, nil, errors.New("credential bundle is not issued yet")
}

// Warnings returns the events about the certificate, each once.
func (c *Certificate) Warnings(now time.Time) []Warning {
	var all []Warning
	once := func(warned *bool, when bool, w Warning) {
		if when && !*warned {
			*warned = true
			all = append(all, w)
		}
	}
	if c.refused != nil {
		once(&c.warnedRefused, true, *c.refused)
		return all
	}
	if c.chain != nil {
		once(&c.warnedOverdue, !now.Before(c.refresh.Add(overdueAfter)), Warning{"CertificateOverdueForRefresh", "PodCertificate refresh overdue"})
		once(&c.warnedExpired, !now.Before(c.expires), Warning{"CertificateExpired", "PodCertificate expired"})
	}
	return all
}

// Next returns when [Certificate.Due] or [Certificate.Warnings] may next have something
// new; the zero time if only [Certificate.Observe] or [Certificate.Deleted] changes it.
func (c *Certificate) Next() time.Time {
	if c.refused != nil {
		return time.Time{}
	}
	var next time.Time
	at := func(t time.Time, when bool) {
		if when && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	issued := c.chain != nil
	switch {
	case c.pending != nil:
		at(c.pending.lost, !c.pending.seen)
	case c.failure != nil:
		at(c.retry, true)
	default:
		at(c.refresh, issued)
	}
	at(c.refresh.Add(overdueAfter), issued && !c.warnedOverdue)
	at(c.expires, issued && !c.warnedExpired)
	return next
}

// Request returns a request for a certificate of a pod, by its stub in DER.
func Request(pod *corev1.Pod, source *corev1.PodCertificateProjection, account *corev1.ServiceAccount, node *corev1.Node, stub []byte) *certificatesv1.PodCertificateRequest {
	return &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, GenerateName: "req-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: source.SignerName,
			PodName:    pod.Name, PodUID: pod.UID,
			ServiceAccountName: account.Name, ServiceAccountUID: account.UID,
			NodeName: types.NodeName(node.Name), NodeUID: node.UID,
			MaxExpirationSeconds: source.MaxExpirationSeconds, StubPKCS10Request: stub, UnverifiedUserAnnotations: source.UserAnnotations,
		},
	}
}
