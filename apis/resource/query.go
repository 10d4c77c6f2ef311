package resource

import (
	"fmt"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
)

// addQuery lets the scheme decode a URL's query into the options of a Connect.
func addQuery(s *runtime.Scheme, options runtime.Object) error {
	return s.AddConversionFunc((*url.Values)(nil), options, func(from, to any, _ conversion.Scope) error {
		return decodeQuery(*from.(*url.Values), to)
	})
}

// decodeQuery sets the fields of a struct from the parameters of their JSON
// names. It ignores parameters for which there is no field.
func decodeQuery(query url.Values, into any) error {
	v := reflect.ValueOf(into).Elem()
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		values := query[name]
		if name == "" || len(values) == 0 {
			continue
		}
		if err := setField(v.Field(i), values); err != nil {
			return fmt.Errorf("parameter %s: %w", name, err)
		}
	}
	return nil
}

// setField sets a field from the values of its parameter: a list from all of
// them, anything else from the first.
func setField(field reflect.Value, values []string) error {
	switch field.Kind() {
	case reflect.Slice:
		list := reflect.MakeSlice(field.Type(), len(values), len(values))
		for i, value := range values {
			if err := setField(list.Index(i), []string{value}); err != nil {
				return err
			}
		}
		field.Set(list)
	case reflect.Pointer:
		to := reflect.New(field.Type().Elem())
		if err := setField(to.Elem(), values); err != nil {
			return err
		}
		field.Set(to)
	case reflect.String:
		field.SetString(values[0])
	case reflect.Bool:
		// In all of the API, a parameter without a value means true.
		field.SetBool(values[0] != "0" && !strings.EqualFold(values[0], "false"))
	case reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(values[0], 10, field.Type().Bits())
		if err != nil {
			return fmt.Errorf("invalid value %q: must be an integer", values[0])
		}
		field.SetInt(n)
	default:
		at, ok := field.Addr().Interface().(*metav1.Time)
		if !ok {
			return fmt.Errorf("a field of type %s cannot be set", field.Type())
		}
		parsed, err := time.Parse(time.RFC3339, values[0])
		if err != nil {
			return fmt.Errorf("invalid value %q: must be a time, such as 2006-01-02T15:04:05Z", values[0])
		}
		*at = metav1.NewTime(parsed)
	}
	return nil
}
