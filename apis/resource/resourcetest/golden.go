package resourcetest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/apis/resource"
)

// Golden compares declared kinds with files: what a client sends, what it
// becomes by defaulting, and how the table view shows it. Each input must be
// valid once it is defaulted, and a second defaulting must change nothing.
//
// The files of a case lie below the package's testdata, in a directory
// <plural>/<case>: input.yaml, output.yaml and, where the table is of
// interest, table.txt. With UPDATE_GOLDEN=1 in the environment the files are
// written instead.
func Golden(t *testing.T, kinds []resource.Declaration) {
	for _, declaration := range kinds {
		k := declaration.Kind()
		inputs, err := filepath.Glob(filepath.Join("testdata", k.Name, "*", "input.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, input := range inputs {
			dir := filepath.Dir(input)
			t.Run(k.Name+"/"+filepath.Base(dir), func(t *testing.T) { goldenCase(t, k, dir) })
		}
	}
}

func goldenCase(t *testing.T, k *resource.Kind, dir string) {
	obj := Read(t, k, filepath.Join(dir, "input.yaml"))
	k.Default(obj)
	once := obj.DeepCopyObject()
	output, err := yaml.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, filepath.Join(dir, "output.yaml"), string(output))
	if k.Default(obj); !cmp.Equal(once, obj) {
		t.Errorf("defaulting is not idempotent:\n%s", cmp.Diff(once, obj))
	}
	if errs := k.Validate(obj); len(errs) > 0 {
		t.Errorf("the input is invalid: %v", errs.ToAggregate())
	}
	table := filepath.Join(dir, "table.txt")
	if _, err := os.Stat(table); err == nil {
		compare(t, table, wideTable(k, obj))
	}
}

// Read reads an object of the hub's type; fields that it does not know fail
// the test.
func Read(t *testing.T, k *resource.Kind, file string) runtime.Object {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	obj := k.New()
	if err := yaml.UnmarshalStrict(data, obj); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return obj
}

// wideTable renders the wide table of an object at the newest release. A time is shown as
// such and not as the time since then.
func wideTable(k *resource.Kind, obj runtime.Object) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', tabwriter.DiscardEmptyColumns)
	for _, c := range k.Columns {
		if c.Until != 0 {
			continue
		}
		heading := strings.ToUpper(c.Name)
		if c.Priority > 0 {
			heading += " (wide)"
		}
		value := c.Cell(obj, Now)
		if at, ok := c.Value(obj).(metav1.Time); ok && !at.IsZero() {
			value = "since " + at.UTC().Format("2006-01-02T15:04:05Z")
		}
		fmt.Fprintf(w, "%s\t%v\n", heading, value)
	}
	w.Flush()
	return text.String()
}

// Errors requires that the errors are these, in any order.
func Errors(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong errors (-want +got):\n%s", diff)
	}
}

func compare(t *testing.T, file, got string) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", file, diff)
	}
}
