package bodycheck

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/apiserver/release/fields"
	"svc.dev/svc/internal/exponent"
)

// selectApplyFields selects the bodies of apply patches to resources of known
// types. Their unknown fields are treated as fieldValidation says
// (document 1, section 6): Strict refuses the body, Warn adds a warning for each
// field and drops it, Ignore drops it. The field manager knows no levels and
// refuses them all. So are fields that the release lacks. Values that are too large for
// their fields are refused (misfits.walk).
func selectApplyFields(known schemes, lacking *fields.Fields) func(req *http.Request) Func {
	return func(req *http.Request) Func {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || !isApply(req) {
			return nil
		}
		scheme := known.of(info.APIGroup)
		if scheme == nil {
			return nil
		}
		return func(body []byte) ([]byte, error) {
			object, err := decode(body)
			if err != nil {
				return body, nil // the handler says what is wrong
			}
			found := compare(object, scheme, lacking)
			if err := found.err(); err != nil || len(found.unknown) == 0 {
				return body, err
			}
			if err := treatUnknown(req, append(duplicates(body), found.unknown...)); err != nil {
				return nil, err
			}
			return json.Marshal(object)
		}
	}
}

// maxReported is how many unknown and duplicate fields of an object are reported. It is the
// limit of the decoder of other bodies (sigs.k8s.io/json).
const maxReported = 100

// treatUnknown treats the texts of the unknown and duplicate fields of an object, which are
// removed already, as the request's fieldValidation says: an error refuses the body.
func treatUnknown(req *http.Request, unknown []string) error {
	if len(unknown) == 0 {
		return nil
	}
	unknown = unknown[:min(len(unknown), maxReported)]
	switch req.URL.Query().Get("fieldValidation") {
	case metav1.FieldValidationStrict:
		text := "strict decoding error: " + strings.Join(unknown, ", ")
		if isApply(req) {
			text += undeclared(unknown)
		}
		return errors.New(text)
	case metav1.FieldValidationIgnore:
	default:
		for _, field := range unknown {
			warning.AddWarning(req.Context(), "", field)
		}
	}
	return nil
}

// undeclared returns what Kubernetes' field manager says of unknown fields of an applied object,
// which its clients look for, as an addition to an error.
func undeclared(unknown []string) string {
	var texts []string
	for _, text := range unknown {
		if path, err := strconv.Unquote(strings.TrimPrefix(text, "unknown field ")); err == nil {
			texts = append(texts, fmt.Sprintf(".%s: field not declared in schema", path))
		}
	}
	if texts == nil {
		return "" // all are duplicate fields
	}
	return " (" + strings.Join(texts, ", ") + ")"
}

// duplicates returns texts for the duplicate fields of an object in YAML, or JSON, which
// the handler does not see if the object is written again.
func duplicates(body []byte) []string {
	var object map[string]any
	if found, err := kjson.UnmarshalStrict(body, &object); err == nil {
		var texts []string
		for _, duplicate := range found {
			texts = append(texts, duplicate.Error())
		}
		return texts
	}
	_, err := yaml.YAMLToJSONStrict(body)
	if err == nil {
		return nil
	}
	// A line for each field follows the first one. A header has no lines.
	heading, fields, _ := strings.Cut(err.Error(), "\n")
	var texts []string
	for field := range strings.Lines(fields) {
		texts = append(texts, heading+" "+strings.TrimSpace(field))
	}
	if texts == nil {
		texts = []string{heading}
	}
	return texts
}

func unknownField(path string) string { return fmt.Sprintf("unknown field %q", path) }

// decode reads an object in JSON or YAML. Clients that are programs send JSON, whose
// decoder is much faster.
func decode(body []byte) (map[string]any, error) {
	var object map[string]any
	if kjson.UnmarshalCaseSensitivePreserveInts(body, &object) == nil {
		return object, nil
	}
	converted, err := yaml.YAMLToJSON(body)
	if err != nil {
		return nil, err
	}
	err = kjson.UnmarshalCaseSensitivePreserveInts(converted, &object)
	return object, err
}

// misfits are texts for the fields of an object that do not fit its type.
type misfits struct{ unknown, tooLarge []string }

// compare compares the object with the type that it names, and removes its unknown
// fields.
func compare(object map[string]any, scheme *runtime.Scheme, lacking *fields.Fields) misfits {
	version, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	var found misfits
	gvk := schema.FromAPIVersionAndKind(version, kind)
	typed, err := scheme.New(gvk)
	if err != nil {
		return found // the handler says that it is not the resource's type
	}
	found.walk(object, reflect.TypeOf(typed), "")
	found.unknown = append(found.unknown, lacking.Of(gvk, reflect.TypeOf(typed).Elem()).Drop(object)...)
	slices.Sort(found.unknown)
	return found
}

// err returns an error if values are too large.
func (m *misfits) err() error {
	if len(m.tooLarge) == 0 {
		return nil
	}
	slices.Sort(m.tooLarge)
	return errors.New(strings.Join(m.tooLarge, ", "))
}

var (
	unmarshaler  = reflect.TypeFor[json.Unmarshaler]()
	unstructured = reflect.TypeFor[runtime.Unstructured]()
	quantity     = reflect.TypeFor[apiresource.Quantity]()
)

// walk adds what does not fit type t in value, which is at path. Of integers that their
// fields cannot hold the library stores the lower bits; quantities with large exponents
// take it minutes (package exponent). Other types that decode themselves fit everything.
func (m *misfits) walk(value any, t reflect.Type, path string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if text, ok := value.(string); ok && t == quantity {
		if err := exponent.Check(text); err != nil {
			m.tooLarge = append(m.tooLarge, fmt.Sprintf("%s: %v", path, err))
		}
	}
	if pointer := reflect.PointerTo(t); pointer.Implements(unmarshaler) || pointer.Implements(unstructured) {
		return
	}
	switch value := value.(type) {
	case int64, float64:
		if isInteger(t) && overflows(value, t) {
			m.tooLarge = append(m.tooLarge, fmt.Sprintf("%s: Invalid value: %v: must fit in %d bits", path, value, t.Bits()))
		}
	case []any:
		if t.Kind() == reflect.Slice {
			for i := range value {
				m.walk(value[i], t.Elem(), fmt.Sprintf("%s[%d]", path, i))
			}
		}
	case map[string]any:
		switch t.Kind() {
		case reflect.Map:
			for key := range value {
				m.walk(value[key], t.Elem(), join(path, key))
			}
		case reflect.Struct:
			m.walkStruct(value, t, path)
		}
	}
}

func isInteger(t reflect.Type) bool { return reflect.Int <= t.Kind() && t.Kind() <= reflect.Int64 }

// overflows reports whether a number is beyond the range of an integer type. Integers
// beyond that of int64 are decoded as float64.
func overflows(number any, t reflect.Type) bool {
	if float, ok := number.(float64); ok {
		return float < math.MinInt64 || float >= math.MaxInt64 || t.OverflowInt(int64(float))
	}
	return t.OverflowInt(number.(int64))
}

func (m *misfits) walkStruct(value map[string]any, t reflect.Type, path string) {
	fields := fieldsOf(t)
	for key := range value {
		field, known := fields[key]
		if !known {
			delete(value, key)
			m.unknown = append(m.unknown, unknownField(join(path, key)))
			continue
		}
		m.walk(value[key], field, join(path, key))
	}
}

// fieldsOf returns the types of the fields of a struct by their names in JSON.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || name == "" && !field.Anonymous:
		case name == "":
			maps.Copy(fields, fieldsOf(field.Type))
		default:
			fields[name] = field.Type
		}
	}
	return fields
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
