// Package noderestriction owns the admission plugin NodeRestriction of Kubernetes:
// a node acts only on its own objects and pods and for their service accounts, so that the
// credentials of one node do not give access to the others. Authorization decides
// which verbs nodes have at all, and that a node updates only its own Node.
package noderestriction

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	authnode "svc.dev/svc/apiserver/authorization/node"
	"svc.dev/svc/internal/fleetaddress"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "NodeRestriction"

// Restrictions are those that not all releases have.
type Restrictions struct {
	// Certificates is whether a node may request certificates for itself only.
	Certificates bool
	// Audiences is whether a node may request tokens only for the audiences of its pods'
	// volumes (KEP-4935).
	Audiences bool
}

// Register registers the plugin, with the restrictions that the function returns when the
// server starts.
func Register(plugins *admission.Plugins, restrictions func() (Restrictions, error)) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		r, err := restrictions()
		if err != nil {
			return nil, err
		}
		return &plugin{Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete), restricts: r}, nil
	})
}

// plugin restricts requests of nodes.
type plugin struct {
	*admission.Handler
	client     kubernetes.Interface
	authorizer authorizer.Authorizer
	restricts  Restrictions
}

var (
	_ admission.MutationInterface            = &plugin{}
	_ admission.ValidationInterface          = &plugin{}
	_ initializer.WantsExternalKubeClientSet = &plugin{}
	_ initializer.WantsAuthorizer            = &plugin{}
)

// SetAuthorizer implements initializer.WantsAuthorizer.
func (p *plugin) SetAuthorizer(a authorizer.Authorizer) { p.authorizer = a }

// SetExternalKubeClientSet implements initializer.WantsExternalKubeClientSet.
func (p *plugin) SetExternalKubeClientSet(client kubernetes.Interface) { p.client = client }

// ValidateInitialization implements admission.InitializationValidator.
func (p *plugin) ValidateInitialization() error {
	if p.client == nil || p.authorizer == nil {
		return errors.New("the plugin needs a client and an authorizer")
	}
	return nil
}

// Admit implements admission.MutationInterface. It changes nothing: it decides on requests
// for tokens, to which the server adds the default audiences before Validate.
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	request, ok := a.GetObject().(*authenticationv1.TokenRequest)
	if !ok {
		return nil
	}
	return restrict(a, func(node string) error { return p.token(ctx, node, a, &request.Spec) })
}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return restrict(a, func(node string) error {
		if a.GetOperation() == admission.Create {
			return p.create(ctx, node, a)
		}
		return p.change(node, a)
	})
}

// restrict refuses a request of a node that check returns an error for. Checks select by Go
// type, which is the same for every group domain of a kind.
func restrict(a admission.Attributes, check func(node string) error) error {
	who := a.GetUserInfo()
	if who == nil {
		return nil
	}
	node, found := fleetaddress.MachineNode(who.GetName(), who.GetGroups())
	if !found && !slices.Contains(who.GetGroups(), user.NodesGroup) {
		return nil
	}
	if !found {
		node, found = strings.CutPrefix(who.GetName(), authnode.UserPrefix)
	}
	if !found || node == "" {
		return admission.NewForbidden(a, fmt.Errorf("could not determine node from user %q", who.GetName()))
	}
	err := check(node)
	if err == nil || apierrors.IsNotFound(err) {
		return err
	}
	return admission.NewForbidden(a, err)
}

// create returns an error unless the node may create the object.
func (p *plugin) create(ctx context.Context, node string, a admission.Attributes) error {
	switch made := a.GetObject().(type) {
	case *corev1.Node:
		return nodeCreation(node, made)
	case *storagev1.CSINode:
		return csiNode(node, made)
	case *coordinationv1.Lease:
		return lease(node, made)
	case *corev1.Pod:
		if sub := a.GetSubresource(); sub != "" {
			return podSubresource(sub)
		}
		return p.mirror(ctx, node, made)
	case *corev1.Binding: // also by POST .../bindings
		return podSubresource("binding")
	case *corev1.PersistentVolumeClaim:
		return errNotStatus
	case *certificatesv1.CertificateSigningRequest:
		if p.restricts.Certificates {
			return ownCertificate(node, a.GetUserInfo().GetName(), made)
		}
	case *certificatesv1.PodCertificateRequest:
		return p.certificateRequest(ctx, node, a, made)
	case *resourcev1.ResourceSlice:
		return slice(node, "create", made)
	case *policyv1.Eviction:
		return p.eviction(ctx, node, a.GetNamespace(), a.GetName())
	}
	return nil
}

// change returns an error unless the node may update or delete the object. A
// request for an earlier pod of the name passes: the storage answers with a
// conflict.
func (p *plugin) change(node string, a admission.Attributes) error {
	switch old := a.GetOldObject().(type) {
	case *certificatesv1.PodCertificateRequest:
		return fmt.Errorf("unexpected operation %v", a.GetOperation())
	case *coordinationv1.Lease:
		return lease(node, old)
	case *resourcev1.ResourceSlice:
		return slice(node, strings.ToLower(string(a.GetOperation())), old)
	case *storagev1.CSINode:
		return csiNode(node, old)
	case *corev1.Node:
		return nodeChange(node, a, old)
	case *corev1.Pod:
		return podChange(node, a, old)
	case *corev1.PersistentVolumeClaim:
		changed, updated := a.GetObject().(*corev1.PersistentVolumeClaim)
		if !updated || a.GetSubresource() != "status" {
			return errNotStatus
		}
		return claimStatus(node, changed, old)
	case *corev1.PersistentVolume:
		if changed, ok := a.GetObject().(*corev1.PersistentVolume); ok {
			return localVolume(node, changed, old)
		}
	}
	return nil
}

// eviction returns an error unless the pod is bound to the node.
func (p *plugin) eviction(ctx context.Context, node, namespace, name string) error {
	pod, err := p.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil && pod.Spec.NodeName != node {
		err = fmt.Errorf("node %s can only evict pods with spec.nodeName set to itself", node)
	}
	return err
}

// token returns an error unless a token is bound to a pod, by name and UID, that is bound
// to the node, and is for an audience of the pod.
func (p *plugin) token(ctx context.Context, node string, a admission.Attributes, spec *authenticationv1.TokenRequestSpec) error {
	ref := spec.BoundObjectRef
	switch {
	case ref == nil || ref.APIVersion != corev1.SchemeGroupVersion.String() || ref.Kind != "Pod" || ref.Name == "":
		return errors.New("node requested token not bound to a pod")
	case ref.UID == "":
		return errors.New("node requested token with a pod binding without a uid")
	}
	pod, err := p.client.CoreV1().Pods(a.GetNamespace()).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return err
	case pod.UID != ref.UID:
		return fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID)
	case pod.Spec.NodeName != node:
		return errors.New("node requested token bound to a pod scheduled on a different node")
	}
	if p.restricts.Audiences {
		return p.audience(ctx, a, spec.Audiences, pod)
	}
	return nil
}

func lease(node string, l *coordinationv1.Lease) error {
	switch {
	case l.Namespace != corev1.NamespaceNodeLease:
		return fmt.Errorf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	case l.Name != node:
		return errors.New("can only access node lease with the same name as the requesting node")
	}
	return nil
}

// slice returns an error unless a slice of devices is the node's. The node of a slice does
// not change.
func slice(node, verb string, s *resourcev1.ResourceSlice) error {
	if ptr.Deref(s.Spec.NodeName, "") != node {
		return fmt.Errorf("can only %s ResourceSlice with the same NodeName as the requesting node", verb)
	}
	return nil
}

func csiNode(node string, n *storagev1.CSINode) error {
	if n.Name != node {
		return errors.New("can only access CSINode with the same name as the requesting node")
	}
	return nil
}
