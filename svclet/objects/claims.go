package objects

import (
	"context"
	"errors"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PersistentVolumeClaim reads a claim from the API server.
func (s *Store) PersistentVolumeClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	return claim, s.Client.Get(unlogged(ctx), client.ObjectKey{Namespace: namespace, Name: name}, claim)
}

// PersistentVolume reads a persistent volume from the API server.
func (s *Store) PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	volume := &corev1.PersistentVolume{}
	return volume, s.Client.Get(unlogged(ctx), client.ObjectKey{Name: name}, volume)
}

// None replaces a store if there is no API server: there are no services, and
// other objects return an error that says so.
type None struct{}

var errStandalone = errors.New("not supported due to running svclet in standalone mode")

// Register does nothing.
func (None) Register(*corev1.Pod) {}

// Unregister does nothing.
func (None) Unregister(types.UID) {}

// Close does nothing.
func (None) Close() {}

// ConfigMap returns an error.
func (None) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return nil, fmt.Errorf("couldn't get configMap %v/%v: %w", namespace, name, errStandalone)
}

// Secret returns an error.
func (None) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	return nil, fmt.Errorf("couldn't get secret %v/%v: %w", namespace, name, errStandalone)
}

// Services returns no services.
func (None) Services(context.Context, string) ([]*corev1.Service, error) { return nil, nil }

// Token returns an error.
func (None) Token(context.Context, *corev1.Pod, *corev1.ServiceAccountTokenProjection) (string, error) {
	return "", errors.New("cannot use TokenManager when svclet is in standalone mode")
}

// TrustBundles returns an error.
func (None) TrustBundles(context.Context, *corev1.ClusterTrustBundleProjection) ([]*certificatesv1.ClusterTrustBundle, error) {
	return nil, fmt.Errorf("ClusterTrustBundle projection: %w", errStandalone)
}

// PodCertificate returns an error.
func (None) PodCertificate(context.Context, *corev1.Pod, string, int, *corev1.PodCertificateProjection) (key, chain []byte, err error) {
	return nil, nil, fmt.Errorf("certificates of pods: %w", errStandalone)
}

// PersistentVolumeClaim returns an error.
func (None) PersistentVolumeClaim(_ context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return nil, fmt.Errorf("couldn't get PVC %v/%v: %w", namespace, name, errStandalone)
}

// PersistentVolume returns an error.
func (None) PersistentVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	return nil, fmt.Errorf("couldn't get PV %v: %w", name, errStandalone)
}
