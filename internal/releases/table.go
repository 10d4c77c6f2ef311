package releases

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Release is a minor release of Kubernetes 1: 28 is 1.28.
type Release int

// Oldest and Newest bound the releases of the table.
const (
	Oldest Release = 16
	Newest Release = 37
)

// String returns the release as 1.MINOR.
func (r Release) String() string { return "1." + strconv.Itoa(int(r)) }

// MarshalText returns 1.28.
func (r Release) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Latest is what [ParseRelease] accepts for Newest.
const Latest = "latest"

// ParseRelease reads a release such as 1.25, v1.25 or 1.25.3, or "latest". It returns an
// error that lists what is accepted.
func ParseRelease(s string) (Release, error) {
	if s == Latest {
		return Newest, nil
	}
	parts := strings.Split(strings.TrimPrefix(s, "v"), ".")
	if len(parts) == 2 || len(parts) == 3 {
		major, err := strconv.Atoi(parts[0])
		minor, minorErr := strconv.Atoi(parts[1])
		if r := Release(minor); err == nil && minorErr == nil && major == 1 && r >= Oldest && r <= Newest {
			return r, nil
		}
	}
	return 0, fmt.Errorf("invalid release %q: must be %v to %v, or %s", s, Oldest, Newest, Latest)
}

// Span is a range of releases, both ends included. Oldest as its first release is
// Oldest or an earlier one.
type Span struct{ First, Last Release }

// Has reports whether r is in the span.
func (s Span) Has(r Release) bool { return r >= s.First && r <= s.Last }

// WarningsSince is the release since which servers warn of deprecated versions, annotate
// audit events of requests to them, and count these (document 2, section 9, rule 8).
const WarningsSince Release = 19

// always is the span of what every release has.
var always = Span{Oldest, Newest}

// Kind is a kind of one version of an API group.
type Kind struct {
	schema.GroupVersionKind
	// Served are the releases that serve it; the first may be older than Oldest.
	Served Span
	// Off reports whether a server serves it only if --runtime-config says so.
	Off bool
	// Deprecated and Removed are the releases that deprecated it and that no longer
	// serve it, as Kubernetes declares them; 0 is undeclared. A removal may lie in the
	// future.
	Deprecated, Removed Release
	// Replacement is what to use instead of it: what Kubernetes declares and, for a
	// deprecated kind without it, the most stable version. Empty if there is none.
	Replacement schema.GroupVersionKind
	// Package is where its type is.
	Package string
}

// Stability is GA, beta or alpha.
func (k *Kind) Stability() string { return Stability(k.Version) }

// Stability returns how stable a version is by its name: GA, beta or alpha.
func Stability(version string) string {
	switch {
	case strings.Contains(version, "alpha"):
		return "alpha"
	case strings.Contains(version, "beta"):
		return "beta"
	}
	return "GA"
}

// ServedAt reports whether a server of release r serves the kind, or would if
// --runtime-config said so.
func (k *Kind) ServedAt(r Release) bool { return k.Served.Has(r) }

// DeprecatedAt reports whether a server of release r warns of the kind.
func (k *Kind) DeprecatedAt(r Release) bool { return k.Deprecated != 0 && r >= k.Deprecated }

// Shape is what a field's value is made of.
type Shape byte

// The shapes. A scalar is also whatever the table knows nothing about.
const (
	Scalar Shape = '-'
	Object Shape = '.'
	List   Shape = '['
	Map    Shape = '{'
	// Either is an object, a list of objects, or a scalar.
	Either Shape = '?'
)

// Field is a field of a type. A field whose type changed is in the table once for each.
type Field struct {
	Name  string
	Shape Shape
	// Type is the name of the type of the value, or of the items or values of it; with
	// its package if that is another. Empty for scalars.
	Type string
	// Enum reports whether Type is an enumeration.
	Enum bool
	In   Span
}

// Type is a type with fields, or an enumeration, whose fields are its values.
type Type struct {
	Package, Name string
	// Enum reports whether it is an enumeration.
	Enum   bool
	Fields []Field
}

// Table is what all releases serve.
type Table struct {
	// Digest is a hash of what the table was generated from.
	Digest string
	// Kinds are sorted by group, version and kind.
	Kinds []Kind
	types map[string]*Type // by package.name
}

// Kind returns a kind, or nil if no release has served it.
func (t *Table) Kind(gvk schema.GroupVersionKind) *Kind {
	i, found := slices.BinarySearchFunc(t.Kinds, gvk, func(k Kind, gvk schema.GroupVersionKind) int { return compareKinds(k.GroupVersionKind, gvk) })
	if !found {
		return nil
	}
	return &t.Kinds[i]
}

// HasGroup reports whether a release has served the group.
func (t *Table) HasGroup(group string) bool {
	return slices.ContainsFunc(t.Kinds, func(k Kind) bool { return k.Group == group })
}

// Versions returns the kinds of that name in a group, the most stable and newest
// version first.
func (t *Table) Versions(gk schema.GroupKind) []*Kind {
	var kinds []*Kind
	for i := range t.Kinds {
		if t.Kinds[i].GroupKind() == gk {
			kinds = append(kinds, &t.Kinds[i])
		}
	}
	slices.SortStableFunc(kinds, func(a, b *Kind) int { return CompareVersions(b.Version, a.Version) })
	return kinds
}

// Successor returns what to use instead of a kind at release r, or nil if it has none
// yet: its replacement, or a replacement of that.
func (t *Table) Successor(k *Kind, r Release) *Kind {
	for next := t.Kind(k.Replacement); next != nil; next = t.Kind(next.Replacement) {
		if next.ServedAt(r) && (!next.DeprecatedAt(r) || t.Kind(next.Replacement) == nil || !t.Kind(next.Replacement).ServedAt(r)) {
			return next
		}
	}
	return nil
}

// Instead returns what a server of release r names as the replacement of a kind: the
// declared one or, as long as the release does not serve that, the newest version of the
// kind that is younger. It is nil if there is none.
func (t *Table) Instead(k *Kind, r Release) *Kind {
	if declared := t.Kind(k.Replacement); declared != nil && declared.ServedAt(r) {
		return declared
	}
	for _, other := range t.Versions(k.GroupKind()) {
		if other.ServedAt(r) && other.Served.First > k.Served.First {
			return other
		}
	}
	return nil
}

// Warning returns the words with which a server of release r warns of a deprecated kind.
func (t *Table) Warning(k *Kind, r Release) string {
	text := fmt.Sprintf("%s %s is deprecated in v%v+", k.GroupVersion(), k.Kind, k.Deprecated)
	if k.Removed != 0 {
		text += fmt.Sprintf(", unavailable in v%v+", k.Removed)
	}
	if to := t.Instead(k, r); to != nil {
		text += fmt.Sprintf("; use %s %s", to.GroupVersion(), to.Kind)
	}
	return text
}

// Type returns the type with the fields of a kind.
func (t *Table) Type(k *Kind) *Type { return t.types[k.Package+"."+k.Kind] }

// TypeOf returns the type of a field of a type, or nil if it has none.
func (t *Table) TypeOf(of *Type, f *Field) *Type {
	if f.Type == "" {
		return nil
	}
	if strings.Contains(f.Type, ".") {
		return t.types[f.Type]
	}
	return t.types[of.Package+"."+f.Type]
}

// Field returns the field of that name which release r has, and otherwise the one of
// the nearest release that has it, and whether r has it. Without any, it returns nil.
func (t *Type) Field(name string, r Release) (field *Field, has bool) {
	for i := range t.Fields {
		f := &t.Fields[i]
		switch {
		case f.Name != name:
		case f.In.Has(r):
			return f, true
		case field == nil || distance(f.In, r) < distance(field.In, r):
			field = f
		}
	}
	return field, false
}

func distance(s Span, r Release) Release { return max(s.First-r, r-s.Last) }

// CompareVersions orders versions of a group by stability and then by number, as
// Kubernetes does: v2 is after v1, v1 after v1beta2.
func CompareVersions(a, b string) int {
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(numbers(a)[0], numbers(b)[0]), cmp.Compare(numbers(a)[1], numbers(b)[1]))
}

func rank(version string) int {
	return slices.Index([]string{"alpha", "beta", "GA"}, Stability(version))
}

// numbers returns the 2 and the 1 of v2beta1.
func numbers(version string) (n [2]int) {
	parts := strings.FieldsFunc(version, func(r rune) bool { return r < '0' || r > '9' })
	for i := range min(2, len(parts)) {
		n[i], _ = strconv.Atoi(parts[i]) // digits only; out of range is 0
	}
	return n
}

func compareKinds(a, b schema.GroupVersionKind) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind))
}
