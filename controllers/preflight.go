package controllers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// waitLogPeriod is the time between two log lines about an API server that does
// not respond.
const waitLogPeriod = 2 * time.Second

// Preflight waits until the API server responds, and checks that it accepts the
// credentials and authorizes the manager to read its lease. The error names the
// remedy; an error that may be temporary is logged and retried.
func (m *Manager) Preflight(ctx context.Context) error {
	key := client.ObjectKey{Namespace: m.election.Namespace, Name: m.election.Name}
	var logged time.Time
	return wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := m.live.Get(ctx, key, &coordinationv1.Lease{})
		if err == nil || apierrors.IsNotFound(err) {
			return true, nil
		}
		if permanent := permanent(m.api, err, m.clock.Now()); permanent != nil {
			return false, permanent
		}
		if m.clock.Since(logged) > waitLogPeriod {
			logged = m.clock.Now()
			klog.FromContext(ctx).Info("Waiting for the API server", "server", m.api.Host, "reason", cause(err).Error())
		}
		return false, nil
	})
}

// cause returns the error of a request without its URL and method.
func cause(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err
	}
	return err
}

// permanent returns an error that names the remedy if retries cannot succeed, and
// nil if err may be temporary.
func permanent(api *rest.Config, err error, now time.Time) error {
	var unknown x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var notTLS tls.RecordHeaderError
	switch {
	case apierrors.IsUnauthorized(err):
		if end, ok := expired(api, now); ok {
			return fmt.Errorf("the client certificate expired on %s: use a new one", end.Format(time.RFC3339))
		}
		return fmt.Errorf("the API server at %s rejects the credentials: the certificate or token belongs to another cluster, or is no longer valid", api.Host)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the user lacks the permissions of %s: %w", User, err)
	case errors.As(err, &unknown), errors.As(err, &hostname), errors.As(err, &invalid):
		return fmt.Errorf("the certificate of %s is not trusted: %w; check that the file belongs to this cluster", api.Host, cause(err))
	case errors.As(err, &notTLS):
		return fmt.Errorf("%s does not speak TLS: %w", api.Host, cause(err))
	}
	return nil
}

// expired reports whether the client certificate has expired, and when.
func expired(api *rest.Config, now time.Time) (time.Time, bool) {
	config, err := rest.TLSConfigFor(api)
	if err != nil || config == nil || config.GetClientCertificate == nil {
		return time.Time{}, false
	}
	certificate, err := config.GetClientCertificate(&tls.CertificateRequestInfo{})
	if err != nil || certificate == nil || len(certificate.Certificate) == 0 {
		return time.Time{}, false
	}
	leaf, err := x509.ParseCertificate(certificate.Certificate[0])
	if err != nil || now.Before(leaf.NotAfter) {
		return time.Time{}, false
	}
	return leaf.NotAfter, true
}
