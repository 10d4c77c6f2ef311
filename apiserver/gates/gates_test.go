package gates

import (
	"strings"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

func TestAGateThatIsNotOfferedIsRefusedByName(t *testing.T) {
	enabled := utilfeature.DefaultMutableFeatureGate.DeepCopy()
	if errs := Validate(enabled); len(errs) != 0 {
		t.Errorf("the defaults are refused: %v", errs)
	}
	for _, name := range []string{"CBORServingAndStorage", "StorageVersionAPI"} {
		gate := enabled.DeepCopy()
		if err := gate.Set(name + "=true"); err != nil {
			t.Fatal(err)
		}
		errs := Validate(gate)
		if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), "--feature-gates: "+name+" is not supported: ") {
			t.Errorf("%s: %v", name, errs)
		}
	}
}
