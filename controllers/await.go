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

// patience is the time between two lines that tell what is waited for.
const patience = 2 * time.Second

// Await waits until the API server answers, and finds out whether it accepts
// the credentials and lets the manager read its lease. What cannot mend itself
// is an error.
func (m *Manager) Await(ctx context.Context) error {
	key := client.ObjectKey{Namespace: m.election.Namespace, Name: m.election.Name}
	var told time.Time
	return wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := m.live.Get(ctx, key, &coordinationv1.Lease{})
		if err == nil || apierrors.IsNotFound(err) {
			return true, nil
		}
		if final := hopeless(m.api, err); final != nil {
			return false, final
		}
		if time.Since(told) > patience {
			told = time.Now()
			klog.FromContext(ctx).Info("Waiting for the API server", "server", m.api.Host, "reason", cause(err).Error())
		}
		return false, nil
	})
}

// cause is what went wrong with a request, without the request.
func cause(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err
	}
	return err
}

// hopeless explains an error that will not go away by itself; nil is one that
// may.
func hopeless(api *rest.Config, err error) error {
	var unknown x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var notTLS tls.RecordHeaderError
	switch {
	case apierrors.IsUnauthorized(err):
		if end, ok := expired(api); ok {
			return fmt.Errorf("the client certificate ended on %s: get a new one", end.Format(time.RFC3339))
		}
		return fmt.Errorf("the API server at %s does not know this user: the certificate or token is of another cluster, or no longer valid", api.Host)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the user has not the rights of %s: %w", User, err)
	case errors.As(err, &unknown), errors.As(err, &hostname), errors.As(err, &invalid):
		return fmt.Errorf("the certificate of %s is not trusted: %w; is this file of another cluster?", api.Host, cause(err))
	case errors.As(err, &notTLS):
		return fmt.Errorf("%s does not speak TLS: %w", api.Host, cause(err))
	}
	return nil
}

// expired tells whether and when the client certificate has ended.
func expired(api *rest.Config) (time.Time, bool) {
	config, err := rest.TLSConfigFor(api)
	if err != nil || config == nil || config.GetClientCertificate == nil {
		return time.Time{}, false
	}
	certificate, err := config.GetClientCertificate(&tls.CertificateRequestInfo{})
	if err != nil || certificate == nil || len(certificate.Certificate) == 0 {
		return time.Time{}, false
	}
	leaf, err := x509.ParseCertificate(certificate.Certificate[0])
	if err != nil || time.Now().Before(leaf.NotAfter) {
		return time.Time{}, false
	}
	return leaf.NotAfter, true
}
