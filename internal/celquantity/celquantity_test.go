package celquantity

import (
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

func TestExpressionsReadNoQuantitiesWithLargeExponents(t *testing.T) {
	for range 2 { // the second call has no effect
		if err := Limit(); err != nil {
			t.Fatal(err)
		}
	}
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: environment.DefaultCompatibilityVersion(), EnvOptions: []cel.EnvOption{cel.Variable("text", cel.StringType)},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, env := range map[string]*cel.Env{"new": set.NewExpressionsEnv(), "stored": set.StoredExpressionsEnv()} {
		for _, test := range []struct{ expression, text, result, failure string }{
			{expression: `isQuantity(text)`, text: "1e9999", result: "true"},
			{expression: `isQuantity(text)`, text: "much", result: "false"},
			{expression: `isQuantity(text)`, text: "1e-999999999", result: "false"},
			{expression: `quantity(text).isGreaterThan(quantity("0"))`, text: "1.5Gi", result: "true"},
			{expression: `quantity(text).isGreaterThan(quantity("0"))`, text: "much", failure: "quantities must match"},
			{expression: `quantity(text).isGreaterThan(quantity("0"))`, text: "1e-999999999", failure: "at most four digits"},
			{expression: `quantity("1e-9999" + "99999").isInteger()`, failure: "at most four digits"},
		} {
			ast, issues := env.Compile(test.expression)
			if issues.Err() != nil {
				t.Fatalf("%s: %v", test.expression, issues.Err())
			}
			program, err := env.Program(ast)
			if err != nil {
				t.Fatal(err)
			}
			result, _, err := program.Eval(map[string]any{"text": test.text})
			switch {
			case test.failure != "":
				if err == nil || !strings.Contains(err.Error(), test.failure) {
					t.Errorf("%s: %s of %s is %v, %v", name, test.expression, test.text, result, err)
				}
			case err != nil || result.ConvertToType(cel.StringType).Value() != test.result:
				t.Errorf("%s: %s of %s is %v, %v", name, test.expression, test.text, result, err)
			}
		}
	}
}
