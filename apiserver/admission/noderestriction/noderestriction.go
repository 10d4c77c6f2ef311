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
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"

	authnode "svc.dev/svc/apiserver/authorization/node"
	"svc.dev/svc/internal/fleetaddress"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "NodeRestriction"

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		return &plugin{Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete)}, nil
	})
}

// plugin validates requests of nodes.
type plugin struct {
	*admission.Handler
	client     kubernetes.Interface
	authorizer authorizer.Authorizer
}

var (
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

// Validate implements admission.ValidationInterface. It selects by Go type, which
// is the same for every group domain of a kind.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
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
		return admission.NewForbidden(a, fmt.Errorf("user %q is in the group of nodes, but its name does not begin with %s", who.GetName(), authnode.UserPrefix))
	}
	var err error
	if a.GetOperation() == admission.Create {
		err = p.create(ctx, node, a)
	} else {
		err = p.change(node, a)
	}
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
		return ofName(node, made)
	case *coordinationv1.Lease:
		return lease(node, made)
	case *corev1.Pod:
		if a.GetSubresource() == "" {
			return p.mirror(ctx, node, made)
		}
	case *certificatesv1.PodCertificateRequest:
		return p.certificateRequest(ctx, node, a, made)
	case *policyv1.Eviction:
		return p.boundTo(ctx, node, a.GetNamespace(), a.GetName(), "")
	case *authenticationv1.TokenRequest:
		ref := made.Spec.BoundObjectRef
		if ref == nil || ref.Kind != "Pod" || ref.UID == "" {
			return fmt.Errorf("node %q may only ask for tokens that are bound to a pod, by name and UID", node)
		}
		return p.boundTo(ctx, node, a.GetNamespace(), ref.Name, string(ref.UID))
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
	case *storagev1.CSINode:
		return ofName(node, old)
	case *corev1.Node:
		return nodeChange(node, a, old)
	case *corev1.Pod:
		return podChange(node, a, old)
	case *corev1.PersistentVolumeClaim:
		if changed, ok := a.GetObject().(*corev1.PersistentVolumeClaim); ok {
			return claimStatus(node, changed, old)
		}
	case *corev1.PersistentVolume:
		if changed, ok := a.GetObject().(*corev1.PersistentVolume); ok {
			return localVolume(node, changed, old)
		}
	}
	return nil
}

// boundTo returns an error unless the pod is bound to the node and has the UID. An
// empty UID matches every pod.
func (p *plugin) boundTo(ctx context.Context, node, namespace, name, uid string) error {
	pod, err := p.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err != nil:
		return err
	case uid != "" && string(pod.UID) != uid:
		return fmt.Errorf("the UID of pod %q is %s and not %s", name, pod.UID, uid)
	case pod.Spec.NodeName != node:
		return notOn(node, pod)
	}
	return nil
}

func notOn(node string, pod *corev1.Pod) error {
	return fmt.Errorf("node %q may only act on its own pods: %s/%s is not bound to it", node, pod.Namespace, pod.Name)
}

func lease(node string, l *coordinationv1.Lease) error {
	if l.Namespace != corev1.NamespaceNodeLease {
		return fmt.Errorf("node %q may only have a lease in the namespace %s", node, corev1.NamespaceNodeLease)
	}
	return ofName(node, l)
}

func ofName(node string, object metav1.Object) error {
	if object.GetName() != node {
		return fmt.Errorf("node %q may only have objects of its own name, and not %q", node, object.GetName())
	}
	return nil
}
