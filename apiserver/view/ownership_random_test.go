package view_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/apis"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/registry/registrytest"
)

// declared is a kind as a declaration.
type declared struct{ kind *resource.Kind }

func (d declared) Kind() *resource.Kind { return d.kind }

// numbersOf are optional fields of a kind's spec that are numbers in all versions, with the
// default 1.
var numbersOf = map[string][]string{"HorizontalPodAutoscaler": {"minReplicas"}}

// versioned is a kind that has several versions.
type versioned struct {
	*resource.Kind
	numbers []string
	created string // the fields of the manager that created the object, without numbers
}

// severalVersions returns the stored kinds that have several versions or groups.
func severalVersions() (kinds []resource.Declaration) {
	for _, k := range apis.Kinds() {
		if k.Stored() && len(k.GVKs()) > 1 {
			kinds = append(kinds, declared{k})
		}
	}
	return kinds
}

// base returns an object of the kind from the zoo of all kinds, without the fields that
// the test sets. It has a label, as a map that becomes empty is a field of its own, which
// the model does not have.
func (k *versioned) base(t *testing.T, gvk schema.GroupVersionKind) map[string]any {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "test", "spec", "testdata", "zz_generated.zoo.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		var obj unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(document), &obj.Object); err != nil {
			t.Fatal(err)
		}
		if obj.GroupVersionKind() == gvk {
			for _, number := range k.numbers {
				unstructured.RemoveNestedField(obj.Object, "spec", number)
			}
			if k.Namespaced {
				obj.SetNamespace("default")
			}
			obj.SetLabels(map[string]string{"kept": "1"})
			if gvk.Kind == "PodCertificateRequest" {
				obj.Object["spec"] = certificateRequest(t)
			}
			return obj.Object
		}
	}
	t.Fatalf("the zoo has no %s", gvk)
	return nil
}

// certificateRequest returns the spec of a valid PodCertificateRequest. That of the zoo has
// no key.
func certificateRequest(t *testing.T) map[string]any {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	stub, err := x509.CreateCertificateRequest(crand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{
		"signerName": "example.com/a", "podName": "a", "podUID": "a", "serviceAccountName": "a", "serviceAccountUID": "a",
		"nodeName": "a", "nodeUID": "a", "stubPKCS10Request": base64.StdEncoding.EncodeToString(stub),
	}
}

// path is that of the kind's collection in a version.
func (k *versioned) path(gvk schema.GroupVersionKind) string {
	root := "/apis/" + gvk.Group + "/" + gvk.Version
	if gvk.Group == "" {
		root = "/api/" + gvk.Version
	}
	if k.Namespaced {
		root += "/namespaces/default"
	}
	return root + "/" + k.Name
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

// managed returns the same of an object. The fields of its creator must not change.
func (k *versioned) managed(t *testing.T, a *registrytest.Answer) string {
	t.Helper()
	o := &owners{fields: map[string]map[string]bool{}}
	created := ""
	for _, e := range a.Object().GetManagedFields() {
		var fields map[string]map[string]map[string]any
		if err := json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields); err != nil {
			t.Fatal(err)
		}
		if e.Manager == "creator" {
			for _, name := range k.numbers { // The creator has their defaults until they change.
				if _, ok := fields["f:spec"]["f:"+name]; ok {
					o.own(e.Manager, name)
				}
				delete(fields["f:spec"], "f:"+name)
			}
			created = fmt.Sprint(fields)
			continue
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
	if k.created == "" {
		k.created = created
	}
	if created != k.created {
		t.Errorf("the creator has\n%s\nwant\n%s", created, k.created)
	}
	return o.String()
}

// body is a write of fields in a version.
func (k *versioned) body(gvk schema.GroupVersionKind, values map[string]int) map[string]any {
	spec, labels := map[string]any{}, map[string]string{}
	for field, value := range values {
		if slices.Contains(k.numbers, field) {
			spec[field] = value
		} else {
			labels[field] = fmt.Sprint(value)
		}
	}
	metadata := map[string]any{"name": "base"}
	if len(labels) > 0 { // An applied empty map is a field of its own, which the model does not have.
		metadata["labels"] = labels
	}
	body := map[string]any{"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind, "metadata": metadata}
	if len(spec) > 0 {
		body["spec"] = spec
	}
	return body
}

// TestManagersOfRandomWritesAtAllVersions writes objects of every kind that has several
// versions at random through all of them, by apply and by patch, and compares the managers
// of their fields with the model.
func TestManagersOfRandomWritesAtAllVersions(t *testing.T) {
	kinds := severalVersions()
	s := registrytest.Start(t, kinds...)
	for _, declaration := range kinds {
		k := &versioned{Kind: declaration.Kind()}
		t.Run(k.Resource().String(), func(t *testing.T) {
			seed := rand.Uint64()
			random := rand.New(rand.NewPCG(seed, 0))
			gvks := k.GVKs()
			k.numbers = numbersOf[gvks[0].Kind]
			first := gvks[random.IntN(len(gvks))]
			created := s.Do("POST", k.path(first)+"?fieldManager=creator", k.base(t, first)).Want(http.StatusCreated)
			name := created.Object().GetName()
			o := &owners{fields: map[string]map[string]bool{}, values: map[string]int{}}
			for _, number := range k.numbers {
				o.set(number, 1, "creator")
				o.own("creator", number)
			}
			if got := k.managed(t, created); got != o.String() {
				t.Fatalf("the managers are\n%s\nwant\n%s\nafter the creation by %s", got, o, first)
			}
			var log []string
			for range 40 {
				w := randomWrite(random, k, o)
				log = append(log, fmt.Sprint(w.verb, " ", w.version, w.query, " ", w.values, " ", w.want))
				history := func() string {
					return fmt.Sprintf("seed %d, created by %s\n%s", seed, first, strings.Join(log[max(0, len(log)-8):], "\n"))
				}
				body := k.body(w.version, w.values)
				body["metadata"].(map[string]any)["name"] = name
				answer := s.Patch(w.verb, k.path(w.version)+"/"+name+w.query, body)
				if answer.Code != w.want {
					t.Fatalf("%d %s\n%s", answer.Code, answer.Body, history())
				}
				if w.want == http.StatusConflict {
					continue
				}
				for _, number := range k.numbers {
					want := max(1, o.values[number]) // Without a value of the model it has its default.
					if got := fmt.Sprint(answer.Field("spec", number)); got != fmt.Sprint(want) {
						t.Fatalf("%s is %s, want %d\n%s\nafter %s", number, got, want, o, history())
					}
				}
				if got := k.managed(t, answer); got != o.String() {
					t.Fatalf("the managers are\n%s\nwant\n%s\nafter %s", got, o, history())
				}
				if t.Failed() {
					t.Fatal(history())
				}
			}
		})
	}
}

// write is a request that the model has taken.
type write struct {
	verb, query string
	version     schema.GroupVersionKind
	values      map[string]int
	want        int
}

// randomWrite makes an apply or a merge patch at a random version, and applies it to the
// model.
func randomWrite(random *rand.Rand, k *versioned, o *owners) write {
	gvks := k.GVKs()
	by := fmt.Sprint("m", random.IntN(3))
	w := write{verb: "merge", query: "?fieldManager=" + by, version: gvks[random.IntN(len(gvks))], values: map[string]int{}, want: http.StatusOK}
	for _, field := range append([]string{"a", "b", "c"}, k.numbers...) {
		if random.IntN(2) == 0 {
			w.values[field] = 2 + random.IntN(2)
		}
	}
	if random.IntN(2) == 0 {
		o.update(by+"="+w.version.GroupVersion().String(), w.values)
		return w
	}
	w.verb = "apply"
	force := random.IntN(2) == 0
	if force {
		w.query += "&force=true"
	}
	if !force && o.conflicts(by, w.values) {
		w.want = http.StatusConflict
		return w
	}
	o.apply(by, w.values)
	return w
}
