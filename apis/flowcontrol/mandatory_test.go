package flowcontrol

import (
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
)

func TestMandatoryObjectsAreFixed(t *testing.T) {
	fs := bootstrap.MandatoryFlowSchemaCatchAll.DeepCopy()
	fs.Spec.Rules = nil
	if err := validateFlowSchema(fs).ToAggregate(); err == nil || !strings.Contains(err.Error(), "spec of 'catch-all' must equal the fixed value") {
		t.Errorf("changed flow schema: %v", err)
	}
	pl := bootstrap.MandatoryPriorityLevelConfigurationCatchAll.DeepCopy()
	*pl.Spec.Limited.NominalConcurrencyShares = 6
	if err := validatePriorityLevel(pl).ToAggregate(); err == nil || !strings.Contains(err.Error(), "spec of 'catch-all' must equal the fixed value") {
		t.Errorf("changed priority level: %v", err)
	}
}
