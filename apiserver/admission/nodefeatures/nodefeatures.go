// Package nodefeatures owns the admission plugin NodeDeclaredFeatureValidator of Kubernetes:
// an update of a pod that runs on a node is refused if the node does not declare the features
// that the update needs (KEP-5328).
package nodefeatures

import (
	"context"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/component-helpers/nodedeclaredfeatures"

	"svc.dev/svc/apiserver/admission/kindreader"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "NodeDeclaredFeatureValidator"

// Register registers the plugin. It handles no request unless settings, which is called when
// the server starts, returns true. They also return the release that the server serves.
func Register(plugins *admission.Plugins, settings func() (enabled bool, release *version.Version, err error)) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		on, release, err := settings()
		if err != nil {
			return nil, err
		}
		if !on {
			return &plugin{WithClient: kindreader.NewWithClient()}, nil
		}
		return &plugin{WithClient: kindreader.NewWithClient(admission.Update), release: release}, nil
	})
}

type plugin struct {
	kindreader.WithClient
	release *version.Version
}

var _ admission.ValidationInterface = &plugin{}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// The Go type is the same for every group domain of the kind.
	pod, isPod := a.GetObject().(*corev1.Pod)
	old, wasPod := a.GetOldObject().(*corev1.Pod)
	if !isPod || !wasPod || a.GetSubresource() != "" && a.GetSubresource() != "resize" || pod.Spec.NodeName == "" {
		return nil
	}
	features := nodedeclaredfeatures.DefaultFramework
	needed, err := features.InferForPodUpdate(infoOf(old), infoOf(pod), p.release)
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("failed to infer pod capability requirements: %w", err))
	}
	if needed.IsEmpty() {
		return nil
	}
	node, err := p.Node(ctx, a, pod.Spec.NodeName)
	if err != nil {
		return err
	}
	match, err := features.MatchNode(needed, node)
	switch {
	case err != nil:
		return admission.NewForbidden(a, fmt.Errorf("failed to match pod requirements against node %q: %w", node.Name, err))
	case !match.IsMatch:
		return admission.NewForbidden(a, fmt.Errorf("pod update requires features %s which are not available on node %q", strings.Join(match.UnsatisfiedRequirements, ", "), node.Name))
	}
	return nil
}

func infoOf(pod *corev1.Pod) *nodedeclaredfeatures.PodInfo {
	return &nodedeclaredfeatures.PodInfo{Spec: &pod.Spec, Status: &pod.Status}
}
