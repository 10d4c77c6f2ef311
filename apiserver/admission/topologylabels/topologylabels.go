// Package topologylabels owns the admission plugin PodTopologyLabels of Kubernetes: pods
// get the labels of their node's zone and region when they are assigned to it, so that a
// container can read them through the downward API.
// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#podtopologylabels
package topologylabels

import (
	"context"
	"io"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"svc.dev/svc/apiserver/admission/kindreader"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "PodTopologyLabels"

// Register registers the plugin. It handles no request unless enabled, which is called when
// the server starts, returns true.
func Register(plugins *admission.Plugins, enabled func() (bool, error)) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		on, err := enabled()
		if err != nil {
			return nil, err
		}
		if !on {
			return &plugin{kindreader.NewWithClient()}, nil
		}
		return &plugin{kindreader.NewWithClient(admission.Create)}, nil
	})
}

type plugin struct{ kindreader.WithClient }

var _ admission.MutationInterface = &plugin{}

// Admit implements admission.MutationInterface. The labels of a binding become those of its
// pod. A pod or binding whose node does not exist stays as it is.
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// The Go types are the same for every group domain of the kinds.
	switch object := a.GetObject().(type) {
	case *corev1.Pod:
		if a.GetSubresource() == "" {
			return p.label(ctx, &object.ObjectMeta, object.Spec.NodeName)
		}
	case *corev1.Binding:
		if a.GetSubresource() == "binding" && object.Target.Kind == "Node" {
			return p.label(ctx, &object.ObjectMeta, object.Target.Name)
		}
	}
	return nil
}

// label sets the labels of a node on an object, if the node has them.
func (p *plugin) label(ctx context.Context, object *metav1.ObjectMeta, node string) error {
	if node == "" || len(content.IsPathSegmentName(node)) > 0 { // which validation refuses
		return nil
	}
	// Version 0 reads the node from the watch cache instead of etcd.
	stored, err := p.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{ResourceVersion: "0"})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
		if value, ok := stored.Labels[key]; ok {
			metav1.SetMetaDataLabel(object, key, value)
		}
	}
	return nil
}
