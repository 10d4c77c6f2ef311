package image

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/pod"
)

// Secrets returns Secrets of the API server.
type Secrets interface {
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// PullSecrets returns a pod's pull secrets for [Manager.Ensure]. Secrets that
// cannot be read are left out, with an event that names them: the images may not
// need them.
func (m *Manager) PullSecrets(ctx context.Context, p *corev1.Pod, from Secrets) []corev1.Secret {
	var secrets []corev1.Secret
	var missing []string
	for _, ref := range p.Spec.ImagePullSecrets {
		// The API server accepts entries without a name, which have no effect.
		if ref.Name == "" {
			continue
		}
		secret, err := from.Secret(ctx, p.Namespace, ref.Name)
		if err != nil {
			klog.V(2).InfoS("Failed to retrieve pull secret, the image pull may not succeed", "pod", klog.KObj(p), "secret", ref.Name, "err", err)
			missing = append(missing, ref.Name)
			continue
		}
		secrets = append(secrets, *secret)
	}
	if len(missing) > 0 && ctx.Err() == nil {
		m.options.Recorder.Event(p, pod.Event{
			Type:    corev1.EventTypeWarning,
			Reason:  "FailedToRetrieveImagePullSecret",
			Message: fmt.Sprintf("Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", ")),
		})
	}
	return secrets
}
