package featuregates

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/component-base/featuregate"
)

func TestGatesHaveTheStagesOfTheRelease(t *testing.T) {
	gates, err := New()
	if err != nil {
		t.Fatal(err)
	}
	for name, on := range map[featuregate.Feature]bool{
		"SidecarContainers": false, "PodHostIPs": false, "NodeSwap": false, "WindowsHostNetwork": true, "MemoryManager": true, "SvcletPodResources": true,
	} {
		if gates.Enabled(name) != on {
			t.Errorf("%s is %t", name, !on)
		}
	}
	if err := gates.Set("TopologyManager=true,SidecarContainers=true"); err != nil || !gates.Enabled("SidecarContainers") {
		t.Errorf("a locked gate that is set to its default: %v", err)
	}
	if err := gates.Set("TopologyManager=false"); err == nil || !strings.Contains(err.Error(), "locked to true") {
		t.Errorf("a feature that cannot be switched off: %v", err)
	}
}

func TestEachGateIsListedOnce(t *testing.T) {
	all := All()
	counts := map[Stage]int{}
	for i, gate := range all {
		counts[gate.Stage]++
		if i > 0 && all[i-1].Name == gate.Name {
			t.Errorf("%s is there twice", gate.Name)
		}
	}
	if counts[Beta] == 0 || counts[Alpha] == 0 || counts[GA] == 0 {
		t.Errorf("%v", counts)
	}
	if own := Own("KubeletPodResourcesGet"); own != "SvcletPodResourcesGet" || !slices.Contains(Names(), own) {
		t.Errorf("Kubernetes' name becomes %s", own)
	}
}
