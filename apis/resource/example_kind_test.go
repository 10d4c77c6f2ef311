package resource_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource"
)

// The code from here to the end of validateLease is the example of
// docs/adding-a-kind.md.

var leases = resource.Type[*coordinationv1.Lease]{
	Name: "leases", Namespaced: true,
	Validate:       validateLease,
	CreateOnUpdate: true,
	Columns: []resource.Column[*coordinationv1.Lease]{
		resource.Name[*coordinationv1.Lease](),
		{Name: "Holder", Value: func(l *coordinationv1.Lease) any { return ptr.Deref(l.Spec.HolderIdentity, "") }},
		resource.Age[*coordinationv1.Lease](),
	},
}

func validateLease(l *coordinationv1.Lease) field.ErrorList {
	var errs field.ErrorList
	if d := l.Spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "leaseDurationSeconds"), *d, "must be greater than 0"))
	}
	return errs
}

func TestExampleOfTheDocsIsTheCodeThatIsCompiledHere(t *testing.T) {
	text := func(file string) string {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	example := regexp.MustCompile("(?s)```go\npackage coordination\n\n(.*?)```").FindStringSubmatch(text("../../docs/adding-a-kind.md"))
	if example == nil {
		t.Fatal("docs/adding-a-kind.md has no example of package coordination")
	}
	if !strings.Contains(text("example_kind_test.go"), example[1]) {
		t.Errorf("example_kind_test.go does not have the example of docs/adding-a-kind.md:\n%s", example[1])
	}
}

func TestExampleOfTheDocsDeclaresAKind(t *testing.T) {
	k := leases.Kind()
	if k.Name != "leases" || k.Singular != "lease" || len(k.Columns) != 3 {
		t.Errorf("kind %q, singular %q, %d columns", k.Name, k.Singular, len(k.Columns))
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: ptr.To[int32](0)}}
	if errs := k.Validate(lease); len(errs) != 1 || errs[0].Field != "spec.leaseDurationSeconds" {
		t.Errorf("a lease of no duration: %v", errs)
	}
}
