package agent

import (
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/extendwebsocketstokubelet"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/inplacepodresize"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/restartallcontainers"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"

	"svc.dev/svc/svclet/config"
)

// features returns the features of nodes that pods, or clients of pods, may need and the agent
// has, sorted. Of those that Kubernetes knows, it neither resizes volumes in memory nor mounts
// volumes with options of the pod.
func features(gates config.Gates) []string {
	return nodedeclaredfeatures.DefaultFramework.DiscoverNodeFeatures(&nodedeclaredfeatures.NodeConfiguration{
		FeatureGates: types.FeatureGateMap{
			extendwebsocketstokubelet.ExtendWebSocketsToKubeletFeatureGate: true,
			inplacepodresize.IPPRPodLevelResourcesFeatureGate:              !gates.WithoutResize,
			inplacepodresize.IPPRInitContainersFeatureGate:                 !gates.WithoutResize && !gates.WithoutInitResize,
			restartallcontainers.RestartAllContainersOnContainerExits:      !gates.WithoutRestartAll,
		},
	})
}

// declaredFeatures returns the features that the Node shows: none before the first release
// whose nodes declare them (KEP-5328).
func declaredFeatures(base common) []string {
	first := version.MajorMinor(1, 35)
	if release, err := version.ParseSemantic(base.Version); err != nil || release.LessThan(first) {
		return nil
	}
	return features(base.Gates)
}
