package bootstrap

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	// tokenTrackingConfigMap is the ConfigMap in kube-system that says since when uses of
	// legacy service account tokens are tracked.
	tokenTrackingConfigMap = "kube-apiserver-legacy-service-account-token-tracking"
	sinceKey               = "since"
	dateFormat             = "2006-01-02"
)

// EnsureTokenTracking writes the date since which uses of legacy tokens are tracked, unless
// there is a valid one: the controller that deletes unused tokens counts from it.
func EnsureTokenTracking(ctx context.Context, client corev1client.CoreV1Interface, now time.Time) error {
	if err := EnsureNamespaces(ctx, client, metav1.NamespaceSystem); err != nil {
		return err
	}
	if err := ensureTokenTracking(ctx, client.ConfigMaps(metav1.NamespaceSystem), now); err != nil {
		return fmt.Errorf("ensure configmap %s: %w", tokenTrackingConfigMap, err)
	}
	return nil
}

func ensureTokenTracking(ctx context.Context, client corev1client.ConfigMapInterface, now time.Time) error {
	data := map[string]string{sinceKey: now.UTC().Format(dateFormat)}
	current, err := client.Get(ctx, tokenTrackingConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: tokenTrackingConfigMap}, Data: data}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // by another server
			return nil
		}
		return err
	}
	if err != nil {
		return err
	}
	if _, err := time.Parse(dateFormat, current.Data[sinceKey]); err == nil {
		return nil
	}
	changed := current.DeepCopy()
	changed.Data = data
	_, err = client.Update(ctx, changed, metav1.UpdateOptions{})
	return err
}
