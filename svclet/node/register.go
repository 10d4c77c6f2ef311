package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	goruntime "runtime"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubeletapis "k8s.io/kubelet/pkg/apis"

	"svc.dev/svc/apis/localpath"
)

// addressAnnotation has the addresses of --node-ip, for the cloud controller manager.
const addressAnnotation = "alpha.kubernetes.io/provided-node-ip"

// uninitializedTaint is on a node until its cloud controller manager has completed it.
const uninitializedTaint = "node.cloudprovider.kubernetes.io/uninitialized"

// attachAnnotation marks a node whose volumes are attached by a controller.
const attachAnnotation = "volumes.kubernetes.io/controller-managed-attach-detach"

// initial returns the Node to create, without its status.
func initial(o *Options) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.Name, Labels: map[string]string{
		corev1.LabelHostname:   o.Hostname,
		corev1.LabelOSStable:   goruntime.GOOS,
		corev1.LabelArchStable: goruntime.GOARCH,
		kubeletapis.LabelOS:    goruntime.GOOS,
		kubeletapis.LabelArch:  goruntime.GOARCH,
	}}}
	maps.Copy(node.Labels, o.Labels)
	node.Spec.Taints = slices.Clone(o.Taints)
	node.Spec.ProviderID = o.ProviderID
	if o.Unschedulable {
		node.Spec.Unschedulable = true
		taint := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
		if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
			node.Spec.Taints = append(node.Spec.Taints, taint)
		}
	}
	if o.ExternalCloud {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: uninitializedTaint, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}
	node.Annotations = annotations(o)
	return node
}

// annotations returns the agent's annotations of the Node.
func annotations(o *Options) map[string]string {
	own := map[string]string{}
	if o.ControllerAttachDetach {
		own[attachAnnotation] = "true"
	}
	if given := specified(o.IPs); o.ExternalCloud && len(given) > 0 {
		own[addressAnnotation] = strings.Join(given, ",")
	}
	if o.LocalVolumes != "" {
		own[localpath.DirectoryAnnotation] = o.LocalVolumes
	}
	return own
}

// specified returns the addresses of --node-ip without those that only select a
// family.
func specified(ips []net.IP) []string {
	var given []string
	for _, ip := range ips {
		if !ip.IsUnspecified() {
			given = append(given, ip.String())
		}
	}
	return given
}

// register creates the Node, or adopts an existing one.
func (n *Node) register(ctx context.Context, node *corev1.Node) error {
	logger := klog.FromContext(ctx).WithValues("node", n.o.Name)
	if !n.o.Register {
		return n.read(ctx)
	}
	if !n.registered {
		logger.Info("Attempting to register node")
	}
	created := &corev1.Node{}
	err := n.o.Core.Post().Resource("nodes").Body(node).Do(ctx).Into(created)
	switch {
	case err == nil:
		logger.Info("Successfully registered node")
		n.registered = true
		n.reported = n.o.Clock.Now()
		n.delay = n.spread()
		n.seen(created)
		return nil
	case !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err):
		return fmt.Errorf("cannot register node %s: %w", n.o.Name, err)
	}
	// A node that may not create its Node may still use an existing one.
	refused := err
	if err := n.read(ctx); err != nil {
		if apierrors.IsNotFound(err) {
			err = refused
		}
		return fmt.Errorf("cannot register node %s: %w", n.o.Name, err)
	}
	if !n.registered {
		logger.Info("Node was previously registered")
	}
	if err := n.adopt(ctx, node); err != nil {
		return err
	}
	n.registered = true
	return nil
}

// read reads the Node.
func (n *Node) read(ctx context.Context) error {
	node := &corev1.Node{}
	if err := n.o.Core.Get().Resource("nodes").Name(n.o.Name).Do(ctx).Into(node); err != nil {
		return fmt.Errorf("cannot read node %s: %w", n.o.Name, err)
	}
	n.seen(node)
	return nil
}

// defaultLabels are updated on an existing Node if their values are known.
var defaultLabels = []string{
	corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone,
	corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceTypeStable, corev1.LabelInstanceType,
	corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelWindowsBuild, kubeletapis.LabelOS, kubeletapis.LabelArch,
}

// requiredLabels are updated on every sync.
var requiredLabels = []string{corev1.LabelOSStable, corev1.LabelArchStable}

// adopt updates the metadata of an existing Node to that of a new one.
func (n *Node) adopt(ctx context.Context, wanted *corev1.Node) error {
	existing := n.current()
	if existing == nil {
		return nil
	}
	change := labelsToSet(existing, wanted, defaultLabels)
	annotations := map[string]any{}
	for _, name := range []string{attachAnnotation, addressAnnotation, localpath.DirectoryAnnotation} {
		switch value := wanted.Annotations[name]; {
		case value == existing.Annotations[name]:
		case value == "":
			annotations[name] = nil
		default:
			annotations[name] = value
		}
	}
	return n.patchMetadata(ctx, existing, change, annotations)
}

// labelsToSet returns those of the labels whose values differ from wanted.
func labelsToSet(existing, wanted *corev1.Node, labels []string) map[string]any {
	set := map[string]any{}
	for _, label := range labels {
		if value := wanted.Labels[label]; value != "" && existing.Labels[label] != value {
			set[label] = value
		}
	}
	return set
}

func (n *Node) patchMetadata(ctx context.Context, existing *corev1.Node, labels, annotations map[string]any) error {
	metadata := map[string]any{"uid": existing.UID}
	if len(labels) > 0 {
		metadata["labels"] = labels
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	if len(metadata) == 1 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	patched := &corev1.Node{}
	err = n.o.Core.Patch(types.StrategicMergePatchType).Resource("nodes").Name(n.o.Name).Body(patch).Do(ctx).Into(patched)
	if err != nil {
		return fmt.Errorf("cannot change the labels and annotations of node %s: %w", n.o.Name, err)
	}
	n.seen(patched)
	return nil
}
