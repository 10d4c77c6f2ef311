// Package noderestriction keeps nodes to what is theirs: whoever has the
// credentials of one node is not to act on the pods of another, nor for their
// service accounts. It is the admission plugin NodeRestriction of Kubernetes.
// What a node may do at all, and that it changes no other Node, is authorization's.
package noderestriction

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
)

// PluginName is its name in --enable-admission-plugins and the like.
const PluginName = "NodeRestriction"

// userPrefix begins the name of the user that a node is:
// https://kubernetes.io/docs/reference/access-authn-authz/node
const userPrefix = "system:node:"

// Register makes the plugin known, and has it run unless it is disabled.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		return &plugin{Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete)}, nil
	})
}

// plugin refuses what a node asks for and is not to have.
type plugin struct {
	*admission.Handler
	client kubernetes.Interface
}

var (
	_ admission.ValidationInterface          = &plugin{}
	_ initializer.WantsExternalKubeClientSet = &plugin{}
)

// SetExternalKubeClientSet implements initializer.WantsExternalKubeClientSet.
func (p *plugin) SetExternalKubeClientSet(client kubernetes.Interface) { p.client = client }

// ValidateInitialization implements admission.InitializationValidator.
func (p *plugin) ValidateInitialization() error {
	if p.client == nil {
		return errors.New("the plugin needs a client")
	}
	return nil
}

// Validate implements admission.ValidationInterface. Types tell the kinds in
// any group domain.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	who := a.GetUserInfo()
	if who == nil || !slices.Contains(who.GetGroups(), user.NodesGroup) {
		return nil
	}
	node, found := strings.CutPrefix(who.GetName(), userPrefix)
	if !found || node == "" {
		return admission.NewForbidden(a, fmt.Errorf("user %q is no node: its name does not begin with %s", who.GetName(), userPrefix))
	}
	var err error
	if a.GetOperation() == admission.Create {
		err = p.create(ctx, node, a)
	} else {
		err = change(node, a)
	}
	if err == nil || apierrors.IsNotFound(err) {
		return err
	}
	return admission.NewForbidden(a, err)
}

// create judges what a node is about to make.
func (p *plugin) create(ctx context.Context, node string, a admission.Attributes) error {
	switch made := a.GetObject().(type) {
	case *corev1.Node:
		return ofName(node, made)
	case *storagev1.CSINode:
		return ofName(node, made)
	case *coordinationv1.Lease:
		return lease(node, made)
	case *corev1.Pod:
		if a.GetSubresource() == "" {
			return mirror(node, made)
		}
	case *policyv1.Eviction:
		return p.on(ctx, node, a.GetNamespace(), a.GetName(), "")
	case *authenticationv1.TokenRequest:
		ref := made.Spec.BoundObjectRef
		if ref == nil || ref.Kind != "Pod" || ref.UID == "" {
			return fmt.Errorf("node %q may only ask for tokens that are bound to a pod, by name and UID", node)
		}
		return p.on(ctx, node, a.GetNamespace(), ref.Name, string(ref.UID))
	}
	return nil
}

// change judges what a node is about to change or delete. If it means an
// earlier object of the name, that is a conflict, which the storage finds.
func change(node string, a admission.Attributes) error {
	switch old := a.GetOldObject().(type) {
	case *coordinationv1.Lease:
		return lease(node, old)
	case *corev1.Pod:
		if old.Spec.NodeName == node || otherMeant(a, old) {
			return nil
		}
		return notOn(node, old)
	}
	return nil
}

// otherMeant tells whether a request is about a pod of another UID.
func otherMeant(a admission.Attributes, old *corev1.Pod) bool {
	if o, ok := a.GetOperationOptions().(*metav1.DeleteOptions); ok {
		return o.Preconditions != nil && o.Preconditions.UID != nil && *o.Preconditions.UID != old.UID
	}
	changed, ok := a.GetObject().(*corev1.Pod)
	return ok && changed.UID != old.UID
}

// on refuses what is about a pod of another node. An empty UID is any.
func (p *plugin) on(ctx context.Context, node, namespace, name, uid string) error {
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

// mirror refuses pods that are not mirrors of the node's static ones.
func mirror(node string, pod *corev1.Pod) error {
	if _, mirrors := pod.Annotations[corev1.MirrorPodAnnotationKey]; !mirrors || pod.Spec.NodeName != node {
		return fmt.Errorf("node %q may only create mirror pods (annotation %s) that are bound to it", node, corev1.MirrorPodAnnotationKey)
	}
	if pod.Spec.ServiceAccountName != "" {
		return fmt.Errorf("node %q may not create pods with a service account", node)
	}
	return nil
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
