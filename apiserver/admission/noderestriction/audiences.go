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

// driver returns the CSI driver of a volume, or nil if it has none.
func (p *plugin) driver(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (*storagev1.CSIDriver, error) {
	claim := ""
	switch {
	case v.CSI != nil:
		return p.client.StorageV1().CSIDrivers().Get(ctx, v.CSI.Driver, metav1.GetOptions{})
	case v.Ephemeral != nil:
		claim = ephemeral.VolumeClaimName(pod, v)
	case v.PersistentVolumeClaim != nil:
		claim = v.PersistentVolumeClaim.ClaimName
	default:
		return nil, nil
	}
	stored, err := p.client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, claim, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	volume, err := p.client.CoreV1().PersistentVolumes().Get(ctx, stored.Spec.VolumeName, metav1.GetOptions{})
	if err != nil || volume.Spec.CSI == nil {
		return nil, err
	}
	return p.client.StorageV1().CSIDrivers().Get(ctx, volume.Spec.CSI.Driver, metav1.GetOptions{})
}
