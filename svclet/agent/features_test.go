package agent

import (
	"slices"
	"testing"

	"svc.dev/svc/svclet/config"
)

func TestNodesDeclareTheirFeatures(t *testing.T) {
	all := []string{"ExtendWebSocketsToKubelet", "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits"}
	for _, test := range []struct {
		version string
		gates   config.Gates
		want    []string
	}{
		{"v1.28.0", config.Gates{}, nil},
		{"v1.34.9", config.Gates{}, nil},
		{"v1.35.0", config.Gates{}, all},
		{"v1.37.0+svc", config.Gates{}, all},
		{"v1.37.0", config.Gates{WithoutResize: true}, []string{all[0], all[3]}},
		{"v1.37.0", config.Gates{WithoutInitResize: true, WithoutRestartAll: true}, all[:2]},
	} {
		if got := declaredFeatures(common{Config: Config{Version: test.version, Gates: test.gates}}); !slices.Equal(got, test.want) {
			t.Errorf("%s %+v: %v, want %v", test.version, test.gates, got, test.want)
		}
	}
}
