package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// value is the value of a flag. It implements pflag.Value. A list or a map in
// several flags accumulates; the first flag replaces the previous value.
type value struct {
	target  reflect.Value
	changed bool
	// separator is between the keys and the values of pairs; empty means "=".
	separator string
}

// Set implements pflag.Value.
func (v *value) Set(text string) error {
	first := !v.changed
	v.changed = true
	target := v.target
	if target.Kind() == reflect.Pointer {
		if target.IsNil() {
			target.Set(reflect.New(target.Type().Elem()))
		}
		target = target.Elem()
	}
	switch p := target.Addr().Interface().(type) {
	case *metav1.Duration:
		return parseDuration(text, &p.Duration)
	case *time.Duration:
		return parseDuration(text, p)
	case *logsapi.TimeOrMetaDuration:
		p.SerializeAsString = true
		return parseDuration(text, &p.Duration.Duration)
	case *resource.QuantityValue:
		if p.Set(text) != nil {
			return errors.New("is not a quantity, such as 64Ki")
		}
		return nil
	case *logsapi.VModuleConfiguration:
		if err := logsapi.VModuleConfigurationPflag(p).Set(text); err != nil {
			return errors.New("is not a list of pattern=N")
		}
		return nil
	case *[]kubeletconfig.MemoryReservation:
		return addReservations(p, first, text)
	case *[]corev1.Taint:
		return addTo(p, first, text, parseTaint)
	case *[]string:
		return addTo(p, first, text, func(s string) (string, error) { return s, nil })
	case *map[string]string:
		return addPairs(p, first, text, cmp.Or(v.separator, "="), func(_, s string) (string, error) { return s, nil })
	case *map[string]bool:
		return addPairs(p, first, text, "=", func(_, s string) (bool, error) { return parseBool(s) })
	case *map[string][]string:
		if first {
			*p = nil
		}
		return addPairs(p, false, text, ":", func(key, s string) ([]string, error) { return append((*p)[key], s), nil })
	}
	return parseScalar(text, target)
}

func parseScalar(text string, target reflect.Value) error {
	switch target.Kind() {
	case reflect.Bool:
		b, err := parseBool(text)
		if err == nil {
			target.SetBool(b)
		}
		return err
	case reflect.Int32, reflect.Int64:
		bits := target.Type().Bits()
		n, err := strconv.ParseInt(text, 0, bits)
		if err == nil {
			target.SetInt(n)
		}
		return notNumber(err, int64(math.MinInt64)>>(64-bits), math.MaxInt64>>(64-bits))
	case reflect.Uint32:
		n, err := strconv.ParseUint(text, 0, 31)
		if err == nil {
			target.SetUint(n)
		}
		return notNumber(err, 0, math.MaxInt32)
	case reflect.String:
		target.SetString(text)
		return nil
	}
	return fmt.Errorf("cannot be given as a flag: its type is %s", target.Type())
}

// notNumber describes an invalid number for a range from low to high.
func notNumber(err error, low, high int64) error {
	switch {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("is out of range: no number from %d to %d", low, high)
	case err != nil:
		return errors.New("is not a whole number")
	}
	return nil
}

func parseBool(text string) (bool, error) {
	b, err := strconv.ParseBool(strings.TrimSpace(text))
	if err != nil {
		return false, errors.New("is not true or false")
	}
	return b, nil
}

func parseDuration(text string, d *time.Duration) error {
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("is not a duration, as 30s or 5m")
	}
	*d = parsed
	return nil
}

// addTo adds the elements of a list.
func addTo[T any](list *[]T, first bool, text string, parse func(string) (T, error)) error {
	if first {
		*list = []T{}
	}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		element, err := parse(part)
		if err != nil {
			return err
		}
		*list = append(*list, element)
	}
	return nil
}

// addPairs adds the pairs of a map.
func addPairs[T any](m *map[string]T, first bool, text, between string, parse func(key, text string) (T, error)) error {
	if first || *m == nil {
		*m = map[string]T{}
	}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		key, text, found := strings.Cut(part, between)
		key = strings.TrimSpace(key)
		if !found || key == "" {
			return fmt.Errorf("has a part that is not key%svalue", between)
		}
		element, err := parse(key, strings.TrimSpace(text))
		if err != nil {
			return err
		}
		(*m)[key] = element
	}
	return nil
}

// addReservations adds the memory of NUMA nodes: NODE:RESOURCE=AMOUNT,...;NODE:...
func addReservations(list *[]kubeletconfig.MemoryReservation, first bool, text string) error {
	if first {
		*list = []kubeletconfig.MemoryReservation{}
	}
	for part := range strings.SplitSeq(text, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		node, amounts, found := strings.Cut(part, ":")
		number, err := strconv.ParseInt(node, 10, 32)
		if !found || err != nil {
			return errors.New("has a part that is not like 0:memory=1Gi")
		}
		pairs := map[string]resource.Quantity{}
		if err := addPairs(&pairs, true, amounts, "=", func(_, s string) (resource.Quantity, error) {
			q, err := resource.ParseQuantity(s)
			if err != nil {
				err = errors.New("has an amount that is not like 1Gi")
			}
			return q, err
		}); err != nil {
			return err
		}
		r := kubeletconfig.MemoryReservation{NumaNode: int32(number), Limits: corev1.ResourceList{}}
		for name, q := range pairs {
			r.Limits[corev1.ResourceName(name)] = q
		}
		*list = append(*list, r)
	}
	return nil
}

func showReservations(list []kubeletconfig.MemoryReservation) string {
	var all []string
	for _, r := range list {
		all = append(all, fmt.Sprintf("%d:%s", r.NumaNode, joined(r.Limits, func(name corev1.ResourceName, q resource.Quantity) []string {
			return []string{string(name) + "=" + q.String()}
		})))
	}
	return strings.Join(all, ";")
}

// parseTaint parses key=value:effect, or key:effect.
func parseTaint(text string) (corev1.Taint, error) {
	pair, effect, found := strings.Cut(text, ":")
	key, value, _ := strings.Cut(pair, "=")
	if !found || key == "" {
		return corev1.Taint{}, errors.New("has a part that is not key=value:effect")
	}
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}, nil
}

// String implements pflag.Value, in the syntax of Set.
func (v *value) String() string {
	if !v.target.IsValid() {
		return ""
	}
	return show(v.target, cmp.Or(v.separator, "="))
}

// show formats a value in the syntax of its flag.
func show(v reflect.Value, separator string) string {
	switch p := plain(v).(type) {
	case nil:
		return ""
	case time.Duration:
		return p.String()
	case []string:
		return strings.Join(p, ",")
	case map[string]string:
		return joined(p, func(key, value string) []string { return []string{key + separator + value} })
	case map[string]bool:
		return joined(p, func(key string, value bool) []string { return []string{key + "=" + strconv.FormatBool(value)} })
	case map[string][]string:
		return joined(p, func(key string, values []string) []string {
			var all []string
			for _, value := range values {
				all = append(all, key+":"+value)
			}
			return all
		})
	case []kubeletconfig.MemoryReservation:
		return showReservations(p)
	case []corev1.Taint:
		var all []string
		for _, taint := range p {
			all = append(all, taint.Key+"="+taint.Value+":"+string(taint.Effect))
		}
		return strings.Join(all, ",")
	case logsapi.VModuleConfiguration:
		return logsapi.VModuleConfigurationPflag(&p).String()
	case resource.QuantityValue:
		return p.String()
	default:
		return fmt.Sprint(p)
	}
}

func joined[K ~string, V any](m map[K]V, parts func(K, V) []string) string {
	var all []string
	for key, value := range sorted(m) {
		all = append(all, parts(key, value)...)
	}
	return strings.Join(all, ",")
}

// Type implements pflag.Value: the name of the type in the help.
func (v *value) Type() string {
	t := v.target.Type()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[metav1.Duration](), reflect.TypeFor[time.Duration](), reflect.TypeFor[logsapi.TimeOrMetaDuration]():
		return "duration"
	case reflect.TypeFor[resource.QuantityValue]():
		return "quantity"
	case reflect.TypeFor[logsapi.VModuleConfiguration](), reflect.TypeFor[map[string]string](), reflect.TypeFor[map[string]bool]():
		return "pairs"
	case reflect.TypeFor[map[string][]string]():
		return "headers"
	case reflect.TypeFor[[]corev1.Taint](), reflect.TypeFor[[]kubeletconfig.MemoryReservation](), reflect.TypeFor[[]string]():
		return "list"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "bool"
	case reflect.String:
		return "string"
	}
	return t.Kind().String()
}
