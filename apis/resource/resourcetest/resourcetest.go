// Package resourcetest runs declarations of kinds as the server does, for the
// tests of those kinds: objects are YAML, rules are tables.
package resourcetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"svc.dev/svc/apis/resource"
)

// Case is one rule of what a kind accepts. Objects are made from the table's
// base by JSON merge patches, written in YAML.
type Case struct {
	// Rule says what holds, as a sentence.
	Rule string
	// Change makes the object.
	Change string
	// Update judges the object as an update; Was makes the object that it
	// replaces. Status judges it as an update of the status, and View as one
	// through the view of that name.
	Update bool
	Status bool
	View   string
	Was    string
	// Want are the errors, in any order; none if the object is accepted.
	Want []string
}

// Run judges the cases, each as a subtest.
func Run(t *testing.T, d resource.Declaration, base string, cases []Case) {
	t.Helper()
	k := d.Kind()
	for _, c := range cases {
		t.Run(c.Rule, func(t *testing.T) {
			obj, old := Object(t, k, base, c.Change), Object(t, k, base, c.Was)
			var got []string
			for _, err := range judge(t, k, c, obj, old) {
				got = append(got, err.Error())
			}
			slices.Sort(got)
			want := slices.Sorted(slices.Values(c.Want))
			if !slices.Equal(got, want) {
				t.Errorf("errors:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
			}
		})
	}
}

func judge(t *testing.T, k *resource.Kind, c Case, obj, old runtime.Object) field.ErrorList {
	switch {
	case c.Status:
		k.PrepareStatus(obj, old)
		return k.ValidateStatus(obj, old)
	case c.View != "":
		i := slices.IndexFunc(k.Views, func(v resource.KindView) bool { return v.Name == c.View })
		if i < 0 {
			t.Fatalf("%s has no view %s", k.Name, c.View)
		}
		k.Views[i].Prepare(obj, old)
		return k.Views[i].Validate(obj, old)
	case c.Update:
		k.PrepareUpdate(context.Background(), obj, old)
		return append(k.Validate(obj), k.ValidateUpdate(obj, old)...)
	}
	k.PrepareCreate(context.Background(), obj)
	var errs field.ErrorList
	name, err := meta.Accessor(obj)
	if err != nil {
		t.Fatal(err)
	}
	for _, msg := range k.NameRule(name.GetName(), false) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), name.GetName(), msg))
	}
	return append(errs, k.Validate(obj)...)
}

// Object makes a defaulted object from YAML and merge patches onto it.
func Object(t *testing.T, k *resource.Kind, base string, changes ...string) runtime.Object {
	t.Helper()
	obj := decode(t, k, base, changes...)
	k.Default(obj)
	return obj
}

// Defaults checks that defaulting makes want of in, and then changes nothing.
func Defaults(t *testing.T, d resource.Declaration, in, want string) {
	t.Helper()
	k := d.Kind()
	got, wanted := Object(t, k, in), decode(t, k, want)
	if !apiequality.Semantic.DeepEqual(got, wanted) {
		t.Errorf("defaulted object differs from what is wanted:\n%s", diff.Diff(wanted, got))
	}
	again := got.DeepCopyObject()
	k.Default(again)
	if !apiequality.Semantic.DeepEqual(got, again) {
		t.Errorf("defaulting twice differs from defaulting once:\n%s", diff.Diff(got, again))
	}
}

// Table checks an object's row in the wide table, in which cells are
// separated by " | " and times are "<time>" or, unset, "<unknown>".
func Table(t *testing.T, d resource.Declaration, object, wantHeader, wantRow string) {
	t.Helper()
	k := d.Kind()
	obj := Object(t, k, object)
	var header, row []string
	for _, c := range k.Columns {
		header = append(header, c.Name)
		row = append(row, cell(c.Value(obj)))
	}
	if got := strings.Join(header, " | "); got != wantHeader {
		t.Errorf("header: %s\nwant:   %s", got, wantHeader)
	}
	if got := strings.Join(row, " | "); got != wantRow {
		t.Errorf("row:  %s\nwant: %s", got, wantRow)
	}
}

func cell(value any) string {
	if at, ok := value.(metav1.Time); ok {
		if at.IsZero() {
			return "<unknown>"
		}
		return "<time>"
	}
	return fmt.Sprint(value)
}

func decode(t *testing.T, k *resource.Kind, base string, changes ...string) runtime.Object {
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
