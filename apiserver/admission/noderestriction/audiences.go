package noderestriction

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-helpers/storage/ephemeral"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
)

// audience returns an error unless a volume of the pod needs a token for the audience, or
// the node may use a verb of Kubernetes for others (KEP-4935). The audience "" is the API
// server's.
func (p *plugin) audience(ctx context.Context, a admission.Attributes, audiences []string, pod *corev1.Pod) error {
	if len(audiences) > 1 {
		return errors.New("node may only request 0 or 1 audiences")
	}
	audience := ""
	if len(audiences) == 1 {
		audience = audiences[0]
	}
	needed, err := p.needsToken(ctx, pod, audience)
	switch {
	case needed:
		return nil
	case err != nil:
		// The request is forbidden: it is not the request that is not found, so nothing is wrapped.
		return fmt.Errorf("error validating audience %q: %s", audience, err.Error())
	}
	decision, _, err := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: "request-serviceaccounts-token-audience", APIVersion: "v1",
		Resource: audience, Namespace: a.GetNamespace(), Name: a.GetName(), ResourceRequest: true,
	})
	switch who := a.GetUserInfo().GetName(); {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return fmt.Errorf("audience %q not found in pod spec volume, error authorizing %s to request tokens for this audience: %w", audience, who, err)
	default:
		return fmt.Errorf("audience %q not found in pod spec volume, %s is not authorized to request tokens for this audience", audience, who)
	}
}

// needsToken reports whether a volume of the pod has a token for the audience, or has a CSI
// driver that gets one. An error is of a volume whose driver is not known.
func (p *plugin) needsToken(ctx context.Context, pod *corev1.Pod, audience string) (bool, error) {
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.ServiceAccountToken != nil && s.ServiceAccountToken.Audience == audience
		}) {
			return true, nil
		}
		driver, err := p.driver(ctx, pod, v)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if driver != nil && slices.ContainsFunc(driver.Spec.TokenRequests, func(r storagev1.TokenRequest) bool { return r.Audience == audience }) {
			return true, nil
		}
	}
	return false, errors.Join(errs...)
}

// translator knows the CSI drivers of the volume types that Kubernetes has migrated.
var translator = csitranslation.New()

// driver returns the CSI driver of a volume, or nil if it has none. A volume of a cloud's own
// type has the driver to which Kubernetes has migrated it.
func (p *plugin) driver(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (*storagev1.CSIDriver, error) {
	var volume *corev1.PersistentVolume
	var err error
	switch {
	case v.CSI != nil:
		return p.client.StorageV1().CSIDrivers().Get(ctx, v.CSI.Driver, metav1.GetOptions{})
	case v.Ephemeral != nil:
		volume, err = p.volume(ctx, pod.Namespace, ephemeral.VolumeClaimName(pod, v))
	case v.PersistentVolumeClaim != nil:
		volume, err = p.volume(ctx, pod.Namespace, v.PersistentVolumeClaim.ClaimName)
	case translator.IsInlineMigratable(v):
		volume, err = translator.TranslateInTreeInlineVolumeToCSI(klog.FromContext(ctx), v, pod.Namespace)
	}
	if err != nil || volume == nil || volume.Spec.CSI == nil {
		return nil, err
	}
	return p.client.StorageV1().CSIDrivers().Get(ctx, volume.Spec.CSI.Driver, metav1.GetOptions{})
}

// volume returns the volume of a claim, as one of its CSI driver if Kubernetes has migrated it.
func (p *plugin) volume(ctx context.Context, namespace, claim string) (*corev1.PersistentVolume, error) {
	stored, err := p.client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, claim, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	volume, err := p.client.CoreV1().PersistentVolumes().Get(ctx, stored.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if translator.IsPVMigratable(volume) {
		return translator.TranslateInTreePVToCSI(klog.FromContext(ctx), volume)
	}
	return volume, nil
}
