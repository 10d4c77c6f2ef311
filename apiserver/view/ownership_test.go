package view_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"svc.dev/svc/apis/autoscaling"
	"svc.dev/svc/apiserver/registry/registrytest"
)

const (
	autoscalerV1 = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/a"
	autoscalerV2 = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/a"

	appliedAutoscaler = `{"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"}, "spec": {
		"minReplicas": 2, "maxReplicas": 5, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}}`
)

// managers are the managers of an object, each with the version of its fields.
func managers(a *registrytest.Answer) string {
	var all []string
	for _, e := range a.Object().GetManagedFields() {
		all = append(all, e.Manager+"="+e.APIVersion)
	}
	return strings.Join(all, " ")
}

func TestAWriteByOneVersionKeepsTheManagersOfTheOthers(t *testing.T) {
	s := registrytest.Start(t, autoscaling.Kinds()...)
	s.Patch("apply", autoscalerV2+"?fieldManager=m2", appliedAutoscaler).Want(http.StatusCreated)
	changed := s.Patch("merge", autoscalerV1+"?fieldManager=m1", `{"spec": {"targetCPUUtilizationPercentage": 50}}`).Want(http.StatusOK)
	if got := managers(changed); got != "m2=autoscaling/v2 m1=autoscaling/v1" {
		t.Errorf("the managers are %s", got)
	}

	other := strings.NewReplacer("/v2", "/v1", `"maxReplicas": 5`, `"maxReplicas": 6`).Replace(appliedAutoscaler)
	s.Patch("apply", autoscalerV1+"?fieldManager=m3", other).Want(http.StatusConflict, "m2", ".spec.maxReplicas")

	dropped := s.Patch("apply", autoscalerV2+"?fieldManager=m2", strings.Replace(appliedAutoscaler, `"minReplicas": 2,`, "", 1)).Want(http.StatusOK)
	if got := dropped.Field("spec", "minReplicas"); fmt.Sprint(got) != "1" {
		t.Errorf("minReplicas, which its manager does not apply any more, is %v instead of the default", got)
	}
}
