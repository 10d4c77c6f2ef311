// Package resourcetest tests declarations of kinds: it runs their functions in
// the order in which the server does, on objects written in YAML.
package resourcetest

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"svc.dev/svc/apis/resource"
)

// Now is the time of the clock in Env.
var Now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Env returns an environment of the newest release with a clock that stands at Now, and
// without any objects.
func Env() *resource.Env {
	return &resource.Env{
		Clock:          testingclock.NewFakePassiveClock(Now),
		Objects:        func(of schema.GroupResource) resource.Objects { return none{of: of} },
		AppArmorFields: true, SpreadSelectors: true, PodResources: true, ResizePodResources: true,
	}
}

// none are the objects of a type that has none: only Get may be called.
type none struct {
	resource.Objects
	of schema.GroupResource
}

// Get implements resource.Objects.
func (n none) Get(_ context.Context, _, name string) (runtime.Object, error) {
	return nil, apierrors.NewNotFound(n.of, name)
}

// Rule is one rule of a kind's validation. Objects are made from the table's base
// by JSON merge patches, written in YAML.
type Rule struct {
	// Name is the rule as a sentence.
	Name string
	// Change makes the object.
	Change string
	// Update validates the object as an update; Was makes the object that it
	// replaces. Status validates it as an update of the status, and View as one
	// through the view of that name.
	Update bool
	Status bool
	View   string
	Was    string
	// Want holds the errors, in any order; none if the object is valid.
	Want []string
}

// Rules checks the rules of a kind, each in a subtest, with defaulted and
// prepared objects.
func Rules(t *testing.T, d resource.Declaration, base string, rules []Rule) {
	t.Helper()
	k := d.Kind()
	for _, r := range rules {
		t.Run(r.Name, func(t *testing.T) {
			obj, old := Object(t, k, base, r.Change), Object(t, k, base, r.Was)
			Errors(t, validate(t, k, r, obj, old), r.Want...)
		})
	}
}

func validate(t *testing.T, k *resource.Kind, r Rule, obj, old runtime.Object) field.ErrorList {
	env := Env()
	switch {
	case r.Status:
		k.PrepareStatus(env, obj, old)
		return append(k.ValidateStatus(obj, old), k.RestrictStatus(env, obj, old)...)
	case r.View != "":
		for _, v := range k.Views {
			if v.Name == r.View {
				v.Prepare(env, obj, old)
				return v.Validate(obj, old)
			}
		}
		t.Fatalf("%s has no view %s", k.Name, r.View)
	case r.Update:
		k.PrepareUpdate(t.Context(), env, obj, old)
		return append(k.Validate(obj), k.ValidateUpdate(obj, old)...)
	}
	k.PrepareCreate(t.Context(), env, obj)
	var errs field.ErrorList
	name, err := meta.Accessor(obj)
	if err != nil {
		t.Fatal(err)
	}
	for _, msg := range k.NameRule(name.GetName(), false) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), name.GetName(), msg))
	}
	return append(append(errs, k.Validate(obj)...), k.ValidateCreate(obj)...)
}

// Object makes a defaulted object from YAML and merge patches onto it.
func Object(t *testing.T, k *resource.Kind, base string, changes ...string) runtime.Object {
	t.Helper()
	doc := toJSON(t, base)
	for _, change := range changes {
		if change == "" {
			continue
		}
		merged, err := jsonpatch.MergePatch(doc, toJSON(t, change))
		if err != nil {
			t.Fatalf("merge: %v\n%s", err, change)
		}
		doc = merged
	}
	obj := k.New()
	if err := yaml.UnmarshalStrict(doc, obj); err != nil {
		t.Fatalf("not a %s: %v\n%s", k.Hub.Kind, err, doc)
	}
	k.Default(obj)
	return obj
}

func toJSON(t *testing.T, doc string) []byte {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(doc))
	if err != nil {
		t.Fatalf("bad YAML: %v\n%s", err, doc)
	}
	return data
}
