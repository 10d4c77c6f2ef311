package main

import (
	"slices"
	"strings"
	"testing"

	"svc.dev/svc/apiserver/admission/plugins"
)

func TestTheCostOfEveryPluginIsMeasured(t *testing.T) {
	// They refuse everything, take as long as their backend, and are of later kinds and
	// subresources.
	left := []string{"AlwaysDeny", "ImagePolicyWebhook", "ClusterTrustBundleAttest", "NodeDeclaredFeatureValidator", "PodResizeValidator", "PodGroupProtection"}
	var measured []string
	for _, a := range onEachKind("") {
		measured = append(measured, a.plugins...)
	}
	for _, p := range plugins.All(plugins.Settings{}) {
		if slices.Contains(measured, p.Name) == slices.Contains(left, p.Name) {
			t.Errorf("%s: measured and left out, or neither", p.Name)
		}
	}
}

func TestTheTimesOfPluginsAreSummedUp(t *testing.T) {
	const metrics = `
# TYPE apiserver_admission_controller_admission_duration_seconds histogram
apiserver_admission_controller_admission_duration_seconds_bucket{name="A",operation="CREATE",rejected="false",type="admit",le="+Inf"} 2
apiserver_admission_controller_admission_duration_seconds_sum{name="A",operation="CREATE",rejected="false",type="admit"} 0.25
apiserver_admission_controller_admission_duration_seconds_count{name="A",operation="CREATE",rejected="false",type="admit"} 2
apiserver_admission_controller_admission_duration_seconds_bucket{name="A",operation="CREATE",rejected="false",type="validate",le="+Inf"} 2
apiserver_admission_controller_admission_duration_seconds_sum{name="A",operation="CREATE",rejected="false",type="validate"} 0.5
apiserver_admission_controller_admission_duration_seconds_count{name="A",operation="CREATE",rejected="false",type="validate"} 2
apiserver_admission_controller_admission_duration_seconds_bucket{name="A",operation="UPDATE",rejected="false",type="admit",le="+Inf"} 2
apiserver_admission_controller_admission_duration_seconds_sum{name="A",operation="UPDATE",rejected="false",type="admit"} 4
apiserver_admission_controller_admission_duration_seconds_count{name="A",operation="UPDATE",rejected="false",type="admit"} 2
`
	seconds, err := readAdmissionTimes(strings.NewReader(metrics), "CREATE")
	if err != nil || seconds["A"] != 0.75 {
		t.Errorf("got %v, %v", seconds, err)
	}
	if _, err := readAdmissionTimes(strings.NewReader(""), "CREATE"); err == nil {
		t.Error("no error without the metric")
	}
}
