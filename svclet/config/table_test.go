package config

import (
	"bufio"
	"cmp"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cliflag "k8s.io/component-base/cli/flag"

	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"svc.dev/svc/internal/featuregates"
)

// ownDefaults are those that the document does not define.
var ownDefaults = map[string]string{
	"v": "0", "version": "false", "help": "false",
}

// ownFlags are those that the document does not have: it leaves services to another
// program.
var ownFlags = []string{"service-proxy", "network-policy", "pod-network", "dns"}

func TestEveryFlagOfTheDocumentExists(t *testing.T) {
	file, err := os.Open("testdata/flags.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	all, flags, c := All(), DefaultFlags(), Default()
	var known []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		words := append(strings.SplitN(lines.Text(), " ", 3), "")
		name, deprecated, want := words[0], words[1] == "D", words[2]
		known = append(known, name)
		s := ofFlag(all, name)
		if s == nil {
			t.Errorf("--%s is missing", name)
			continue
		}
		if s.Deprecated != deprecated {
			t.Errorf("--%s: deprecated is %t, want %t", name, s.Deprecated, deprecated)
		}
		if own, ok := ownDefaults[name]; ok {
			want = own
		}
		if got := (&value{target: s.target(&flags, c), separator: s.Separator}).String(); got != want {
			t.Errorf("--%s: default is %q, want %q", name, got, want)
		}
	}
	for i := range all {
		if flag := all[i].Flag; flag != "" && !slices.Contains(known, flag) && !slices.Contains(ownFlags, flag) {
			t.Errorf("--%s is not in the document", flag)
		}
	}
}

func TestEveryFieldIsInTheTable(t *testing.T) {
	all := All()
	var walk func(reflect.Type, string)
	walk = func(group reflect.Type, path string) {
		if group.Kind() == reflect.Pointer {
			group = group.Elem()
		}
		for name, index := range sorted(fields(group)) {
			inner := strings.TrimPrefix(path+"."+name, ".")
			field := group.FieldByIndex(index).Type
			switch {
			case inner == "kind" || inner == "apiVersion" || ofField(all, inner) != nil:
			case isGroup(field):
				walk(field, inner)
			default:
				t.Errorf("field %s is in no setting", inner)
			}
		}
	}
	walk(reflect.TypeFor[Configuration](), "")
	for i := range all {
		s := &all[i]
		if s.Field != "" && !fieldOf(&Configuration{}, s.Field).IsValid() {
			t.Errorf("there is no field %s", s.Field)
		}
		if s.Flag == "" && s.Field == "" || s.Usage == "" {
			t.Errorf("setting %s%s is incomplete", s.Flag, s.Field)
		}
		for j := range i {
			if s.Flag != "" && s.Flag == all[j].Flag || s.Field != "" && s.Field == all[j].Field {
				t.Errorf("setting %s%s is there twice", s.Flag, s.Field)
			}
		}
	}
}

// sample returns flag values by type, and the resulting field values.
func sample(t *testing.T, s *Setting, field reflect.Type) (string, any) {
	t.Helper()
	if field.Kind() == reflect.Pointer {
		field = field.Elem()
	}
	switch reflect.New(field).Elem().Interface().(type) {
	case time.Duration:
		return "7s", 7 * time.Second
	case metav1.Duration:
		return "77ms", metav1.Duration{Duration: 77 * time.Millisecond}
	case logsapi.TimeOrMetaDuration:
		return "7s", logsapi.TimeOrMetaDuration{Duration: metav1.Duration{Duration: 7 * time.Second}, SerializeAsString: true}
	case resource.QuantityValue:
		return "64Ki", resource.QuantityValue{Quantity: resource.MustParse("64Ki")}
	case logsapi.VModuleConfiguration:
		return "a=1,b*=2", logsapi.VModuleConfiguration{{FilePattern: "a", Verbosity: 1}, {FilePattern: "b*", Verbosity: 2}}
	case []corev1.Taint:
		return "a=b:NoSchedule,c=:NoExecute", []corev1.Taint{{Key: "a", Value: "b", Effect: "NoSchedule"}, {Key: "c", Effect: "NoExecute"}}
	case []kubeletconfig.MemoryReservation:
		return "0:hugepages-2Mi=4Mi,memory=1Gi;1:memory=2Gi", []kubeletconfig.MemoryReservation{
			{NumaNode: 0, Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi"), "hugepages-2Mi": resource.MustParse("4Mi")}},
			{NumaNode: 1, Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}},
		}
	case []string:
		return "x,y", []string{"x", "y"}
	case map[string]string:
		return strings.ReplaceAll("k=1,l=2", "=", cmp.Or(s.Separator, "=")), map[string]string{"k": "1", "l": "2"}
	case map[string]bool:
		return "A=true,B=false", map[string]bool{"A": true, "B": false}
	case map[string][]string:
		return "a:1,a:2,b:3", map[string][]string{"a": {"1", "2"}, "b": {"3"}}
	}
	switch field.Kind() {
	case reflect.Bool:
		return "true", true
	case reflect.Int32:
		return "7", int32(7)
	case reflect.Int64:
		return "7", int64(7)
	case reflect.Uint32:
		return "7", logsapi.VerbosityLevel(7)
	case reflect.String:
		return "text", reflect.ValueOf("text").Convert(field).Interface()
	}
	t.Fatalf("%s: there is no sample of type %s", s.Flag, field)
	return "", nil
}

func TestEveryFlagSetsItsFieldAndShowsItAgain(t *testing.T) {
	all := All()
	for i := range all {
		s := &all[i]
		if s.Flag == "" || s.fallback != nil {
			continue
		}
		for _, name := range s.names() {
			flags, c := Flags{}, &Configuration{}
			target := s.target(&flags, c)
			text, want := sample(t, s, target.Type())
			if line := parse([]string{"--" + name + "=" + text}, all, &flags, c); len(line.problems) > 0 {
				t.Errorf("--%s=%s: %v", name, text, line.problems)
				continue
			}
			got := reflect.Indirect(target)
			if !reflect.DeepEqual(got.Interface(), want) {
				t.Errorf("--%s=%s sets %v, want %v", name, text, got, want)
			}
			if shown := (&value{target: target, separator: s.Separator}).String(); shown != text {
				t.Errorf("--%s=%s is shown as %s", name, text, shown)
			}
			// No other field is set.
			target.SetZero()
			if !reflect.DeepEqual(flags, Flags{}) || !reflect.DeepEqual(c, &Configuration{}) {
				t.Errorf("--%s sets more than its field", name)
			}
		}
	}
}

func TestDefaultsAreValid(t *testing.T) {
	if _, err := Load(nil, func(string) string { return "" }); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	// A file may contain these values.
	data, err := json.Marshal(Default())
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir() + "/default.json"
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Load([]string{"--config", path}, func(string) string { return "" })
	if err != nil {
		t.Fatalf("a file with all defaults is refused: %v", err)
	}
	if !reflect.DeepEqual(s.Configuration, Default()) {
		t.Error("a file with all defaults changes them")
	}
}

func TestCipherSuitesAreTheDocuments(t *testing.T) {
	const documented = `TLS_AES_128_GCM_SHA256 TLS_AES_256_GCM_SHA384 TLS_CHACHA20_POLY1305_SHA256
TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA
TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305 TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA
TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305 TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
TLS_RSA_WITH_AES_128_CBC_SHA TLS_RSA_WITH_AES_128_GCM_SHA256 TLS_RSA_WITH_AES_256_CBC_SHA TLS_RSA_WITH_AES_256_GCM_SHA384
TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256 TLS_ECDHE_ECDSA_WITH_RC4_128_SHA TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA
TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256 TLS_ECDHE_RSA_WITH_RC4_128_SHA TLS_RSA_WITH_3DES_EDE_CBC_SHA
TLS_RSA_WITH_AES_128_CBC_SHA256 TLS_RSA_WITH_RC4_128_SHA`
	known := cliflag.TLSCipherPossibleValues()
	for suite := range strings.FieldsSeq(documented) {
		if !slices.Contains(known, suite) {
			t.Errorf("%s is not known", suite)
		}
	}
}

func TestGatesWithAnEffectAreListedOnce(t *testing.T) {
	gates := featuregates.All()
	for i := range gates {
		if i > 0 && gates[i-1].Name == gates[i].Name {
			t.Errorf("%s is there twice", gates[i].Name)
		}
	}
	for name := range gateEffects() {
		if !slices.ContainsFunc(gates, func(g featuregates.Gate) bool { return g.Name == name }) {
			t.Errorf("svclet acts on %s, which is no gate", name)
		}
	}
}
