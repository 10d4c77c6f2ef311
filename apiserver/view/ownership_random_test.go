package view_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"svc.dev/svc/apis/autoscaling"
	"svc.dev/svc/apis/flowcontrol"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/registry/registrytest"
)

// versioned is a kind that has several versions, in which the same fields are numbers.
type versioned struct {
	kind         string
	group        string
	path         string // with the version to be filled in
	versions     []string
	declarations []resource.Declaration
	base         string   // the fields of a spec that a write must have
	numbers      []string // optional fields of the spec
}

var severalVersions = []versioned{
	{
		kind: "HorizontalPodAutoscaler", group: "autoscaling", versions: []string{"v1", "v2"}, declarations: autoscaling.Kinds(),
		path: "/apis/autoscaling/%s/namespaces/default/horizontalpodautoscalers/a",
		base: `{"maxReplicas": 100, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}`, numbers: []string{"minReplicas"},
	},
	{
		kind: "FlowSchema", group: "flowcontrol.apiserver.k8s.io", versions: []string{"v1beta2", "v1beta3"}, declarations: flowcontrol.Kinds(),
		path: "/apis/flowcontrol.apiserver.k8s.io/%s/flowschemas/a",
		base: `{"priorityLevelConfiguration": {"name": "exempt"}}`,
		// matchingPrecedence has no omitempty: a conversion sets it, so an apply by its
		// last owner does not remove it while managers at the other version exist.
	},
}

// owners is the model: who manages which fields, and the values that managers set. A
// manager that applies is one in all versions; one that updates, one in each.
type owners struct {
	fields map[string]map[string]bool // by manager
	values map[string]int
}

// owned reports whether a manager other than by has the field.
func (o *owners) owned(field, by string) bool {
	for manager, fields := range o.fields {
		if manager != by && fields[field] {
			return true
		}
	}
	return false
}

// set gives a field a value. All other managers lose it if the value is another.
func (o *owners) set(field string, value int, by string) (changed bool) {
	before, exists := o.values[field]
	if exists && before == value {
		return false
	}
	for manager, fields := range o.fields {
		if manager != by {
			delete(fields, field)
		}
	}
	o.values[field] = value
	return true
}

// update is a merge patch: its manager gets the fields that it changes.
func (o *owners) update(by string, values map[string]int) {
	for field, value := range values {
		if o.set(field, value, by) {
			o.own(by, field)
		}
	}
}

func (o *owners) own(by, field string) {
	if o.fields[by] == nil {
		o.fields[by] = map[string]bool{}
	}
	o.fields[by][field] = true
}

// conflicts reports whether an apply changes a field of another manager.
func (o *owners) conflicts(by string, values map[string]int) bool {
	for field, value := range values {
		if before, exists := o.values[field]; exists && before != value && o.owned(field, by) {
			return true
		}
	}
	return false
}

// apply gives its manager the fields that it has, and removes those that it had and no
// other manager has.
func (o *owners) apply(by string, values map[string]int) {
	for field := range o.fields[by] {
		if _, ok := values[field]; !ok && !o.owned(field, by) {
			delete(o.values, field)
		}
	}
	o.fields[by] = nil
	for field, value := range values {
		o.set(field, value, by)
		o.own(by, field)
	}
}

// String lists the fields of each manager.
func (o *owners) String() string {
	var lines []string
	for manager, fields := range o.fields {
		if len(fields) > 0 {
			kept := slices.Sorted(maps.Keys(fields))
			kept = slices.DeleteFunc(kept, func(f string) bool { return !fields[f] })
			lines = append(lines, manager+": "+strings.Join(kept, " "))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// managed returns the same of an object.
func (k versioned) managed(t *testing.T, a *registrytest.Answer) string {
	t.Helper()
	o := &owners{fields: map[string]map[string]bool{}}
	for _, e := range a.Object().GetManagedFields() {
		var fields map[string]map[string]map[string]any
		if err := json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields); err != nil {
			t.Fatal(err)
		}
		manager := e.Manager
		if e.Operation == "Update" {
			manager += "=" + e.APIVersion
		}
		for name := range fields["f:metadata"]["f:labels"] {
			if name != "." {
				o.own(manager, strings.TrimPrefix(name, "f:"))
			}
		}
		for _, name := range k.numbers {
			if _, ok := fields["f:spec"]["f:"+name]; ok {
				o.own(manager, name)
			}
		}
	}
	return o.String()
}

// body is a write of fields in a version.
func (k versioned) body(version string, values map[string]int, whole bool) map[string]any {
	spec, labels := map[string]any{}, map[string]string{}
	if whole {
		if err := json.Unmarshal([]byte(k.base), &spec); err != nil {
			panic(err)
		}
	}
	for field, value := range values {
		if slices.Contains(k.numbers, field) {
			spec[field] = value
		} else {
			labels[field] = fmt.Sprint(value)
		}
	}
	metadata := map[string]any{"name": "a"}
	if len(labels) > 0 { // An applied empty map is a field of its own, which the model does not have.
		metadata["labels"] = labels
	}
	return map[string]any{"apiVersion": k.group + "/" + version, "kind": k.kind, "metadata": metadata, "spec": spec}
}

// TestManagersOfRandomWritesAtAllVersions writes an object at random through all versions
// of its kind, by apply and by patch, and compares the managers of its fields with the model.
func TestManagersOfRandomWritesAtAllVersions(t *testing.T) {
	for _, k := range severalVersions {
		t.Run(k.kind, func(t *testing.T) {
			seed := rand.Uint64()
			random := rand.New(rand.NewPCG(seed, 0))
			s := registrytest.Start(t, k.declarations...)
			o := &owners{fields: map[string]map[string]bool{}, values: map[string]int{}}
			var log []string
			for i := range 300 {
				version := k.versions[random.IntN(len(k.versions))]
				path, by := fmt.Sprintf(k.path, version), fmt.Sprint("m", random.IntN(3))
				values := map[string]int{}
				for _, field := range append([]string{"a", "b", "c"}, k.numbers...) {
					if random.IntN(2) == 0 {
						values[field] = 2 + random.IntN(2)
					}
				}
				query, verb, want := "?fieldManager="+by, "merge", http.StatusOK
				force := random.IntN(2) == 0
				switch {
				case i > 0 && random.IntN(2) == 0:
					o.update(by+"="+k.group+"/"+version, values)
				default:
					verb = "apply"
					if force {
						query += "&force=true"
					}
					if i == 0 {
						want = http.StatusCreated
					} else if !force && o.conflicts(by, values) {
						want = http.StatusConflict
					}
					if want != http.StatusConflict {
						o.apply(by, values)
					}
				}
				log = append(log, fmt.Sprint(verb, " ", version, query, " ", values, " ", want))
				answer := s.Patch(verb, path+query, k.body(version, values, verb == "apply"))
				if answer.Code != want {
					t.Fatalf("seed %d: %d %s\n%s", seed, answer.Code, answer.Body, strings.Join(log, "\n"))
				}
				if want == http.StatusConflict {
					continue
				}
				for _, number := range k.numbers {
					// Without a value of the model it has its default.
					if got, want := fmt.Sprint(answer.Field("spec", number)), o.values[number]; (want != 0) != (got == "2" || got == "3") || want != 0 && got != fmt.Sprint(want) {
						t.Fatalf("seed %d: %s is %s, want %d\n%s\nafter\n%s", seed, number, got, want, o, strings.Join(log[max(0, len(log)-8):], "\n"))
					}
				}
				if got := k.managed(t, answer); got != o.String() {
					t.Fatalf("seed %d: the managers are\n%s\nwant\n%s\nafter\n%s", seed, got, o, strings.Join(log[max(0, len(log)-8):], "\n"))
				}
			}
		})
	}
}
