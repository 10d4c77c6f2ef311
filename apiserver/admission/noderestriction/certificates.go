package noderestriction

import (
	"context"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"svc.dev/svc/apiserver/admission/certificates"
	authnode "svc.dev/svc/apiserver/authorization/node"
)

// ownCertificate returns an error if a request for a node's client or serving certificate has
// the common name of another node. A machine of a fleet is a user with a name of its own.
func ownCertificate(node, username string, csr *certificatesv1.CertificateSigningRequest) error {
	if name := csr.Spec.SignerName; name != certificatesv1.KubeletServingSignerName && name != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return nil
	}
	request, err := certificates.Parse(csr.Spec.Request)
	if err != nil {
		return fmt.Errorf("unable to parse csr: %w", err)
	}
	if name := request.Subject.CommonName; name != authnode.UserPrefix+node && name != username {
		return fmt.Errorf("can only create a node CSR with CN=%s", authnode.UserPrefix+node)
	}
	return nil
}

// certificateRequest returns an error unless a request for a certificate is for a pod of
// the node, with the pod's service account, and the pod has a volume with a certificate of
// the signer (KEP-4317).
func (p *plugin) certificateRequest(ctx context.Context, node string, a admission.Attributes, r *certificatesv1.PodCertificateRequest) error {
	if a.GetSubresource() != "" {
		return fmt.Errorf("unexpected subresource %v", a.GetSubresource())
	}
	if string(r.Spec.NodeName) != node {
		return fmt.Errorf("PodCertificateRequest.Spec.NodeName=%q, which is not the requesting node %q", r.Spec.NodeName, node)
	}
	stored, err := p.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	switch {
	// The request is forbidden: it is not the request that is not found, so nothing is wrapped.
	case err != nil:
		return fmt.Errorf("while retrieving node %q named in the PodCertificateRequest: %s", node, err.Error())
	case stored.UID != r.Spec.NodeUID:
		return fmt.Errorf("PodCertificateRequest for pod %q names node UID %q, inconsistent with the running node (%q)", podOf(a, r), r.Spec.NodeUID, stored.UID)
	}
	pod, err := p.client.CoreV1().Pods(a.GetNamespace()).Get(ctx, r.Spec.PodName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("while retrieving pod %q named in the PodCertificateRequest: %s", podOf(a, r), err.Error())
	}
	if err := ofPod(a, r, pod); err != nil {
		return err
	}
	account, err := p.client.CoreV1().ServiceAccounts(a.GetNamespace()).Get(ctx, r.Spec.ServiceAccountName, metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("while retrieving service account %q named in the PodCertificateRequest: %s", a.GetNamespace()+"/"+r.Spec.ServiceAccountName, err.Error())
	case account.UID != r.Spec.ServiceAccountUID:
		return fmt.Errorf("PodCertificateRequest for pod %q names service account UID %q, which differs from the running service account (%q)", podOf(a, r), r.Spec.ServiceAccountUID, account.UID)
	}
	return p.ofSigner(ctx, a, r, pod)
}

// podOf returns the namespace and name of the pod of a request.
func podOf(a admission.Attributes, r *certificatesv1.PodCertificateRequest) string {
	return a.GetNamespace() + "/" + r.Spec.PodName
}

// ofPod returns an error unless the request has the UID, the node and the service account
// of the pod, which must not be the mirror of a static one.
func ofPod(a admission.Attributes, r *certificatesv1.PodCertificateRequest, pod *corev1.Pod) error {
	_, mirrors := pod.Annotations[corev1.MirrorPodAnnotationKey]
	switch {
	case r.Spec.PodUID != pod.UID:
		return fmt.Errorf("PodCertificateRequest for pod %q contains pod UID (%q) which differs from running pod %q", podOf(a, r), r.Spec.PodUID, pod.UID)
	case pod.Spec.NodeName != string(r.Spec.NodeName):
		return fmt.Errorf("pod %q is not running on node %q named in the PodCertificateRequest", podOf(a, r), r.Spec.NodeName)
	case mirrors:
		return fmt.Errorf("pod %q is a mirror pod", podOf(a, r))
	case r.Spec.ServiceAccountName != pod.Spec.ServiceAccountName:
		return fmt.Errorf("PodCertificateRequest for pod %q contains serviceAccountName (%q) that differs from running pod (%q)", podOf(a, r), r.Spec.ServiceAccountName, pod.Spec.ServiceAccountName)
	}
	return nil
}

// ofSigner returns an error unless the pod has a volume with a certificate of the request's
// signer, or the node may use a verb of Kubernetes for others.
func (p *plugin) ofSigner(ctx context.Context, a admission.Attributes, r *certificatesv1.PodCertificateRequest, pod *corev1.Pod) error {
	for i := range pod.Spec.Volumes {
		projected := pod.Spec.Volumes[i].Projected
		if projected != nil && slices.ContainsFunc(projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.PodCertificate != nil && s.PodCertificate.SignerName == r.Spec.SignerName
		}) {
			return nil
		}
	}
	decision, _, err := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: "request-serviceaccounts-podcertificate-signer",
		APIGroup: certificatesv1.GroupName, APIVersion: a.GetResource().Version, Resource: strings.ReplaceAll(r.Spec.SignerName, "/", ":"),
		Namespace: a.GetNamespace(), Name: r.Spec.ServiceAccountName, ResourceRequest: true,
	})
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return fmt.Errorf("error authorizing %s to request podcertificaterequests for signer %q: %w", a.GetUserInfo().GetName(), r.Spec.SignerName, err)
	}
	return fmt.Errorf("pod %q does not mount a podCertificate projected volume for signer %q", podOf(a, r), r.Spec.SignerName)
}
