package exponent

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

func TestParseRefusesLargeExponents(t *testing.T) {
	for _, test := range []struct {
		rule, text string
		refused    bool
	}{
		{"an ordinary quantity", "500m", false},
		{"an exponent of four digits", "1e9999", false},
		{"leading zeros do not make it larger", "1e000003", false},
		{"exa is no exponent", "12345E", false},
		{"five digits", "1e10000", true},
		{"a negative one", "1e-10000", true},
		{"in capitals, with a sign and a point", "+1.E+99999", true},
		{"leading zeros do not hide it", "1e-" + strings.Repeat("0", 300) + "99999", true},
		{"a number without digits before it", "e99999", true},
	} {
		t.Run(test.rule, func(t *testing.T) {
			if _, err := Parse(test.text); errors.Is(err, errTooLarge) != test.refused || err != nil && !test.refused {
				t.Errorf("Parse(%q): %v", test.text, err)
			}
		})
	}
}

func TestUnmarshalRefusesLargeExponents(t *testing.T) {
	type value struct {
		Name   string                       `json:"name"`
		Limits map[string]resource.Quantity `json:"limits"`
	}
	for _, test := range []struct {
		rule, data, err string
	}{
		{"an ordinary quantity", `{"limits":{"cpu":"1"}}`, "<nil>"},
		{"a hash that is no quantity", `{"name":"4e12345","limits":{"cpu":"1"}}`, "<nil>"},
		{"an escaped letter before digits", `{"name":"Caf\u00e920240","limits":{"cpu":"1"}}`, "<nil>"},
		{"a quantity", `{"limits":{"cpu":"1e99999"}}`, `limits.cpu: quantity "1e99999": the exponent may have at most four digits`},
		{"the first of two fields of a name", `{"limits":{"cpu":"1e99999","cpu":"1"}}`, "at most four digits"},
		{"a number", `{"limits":{"cpu":1e99999}}`, `limits.cpu: quantity "1e99999": the exponent may have at most four digits`},
		{"a number in a name is not blamed", `{"name":"ab4e12345","limits":{"cpu":"1e99999","memory":"-1e-99999"}}`,
			`[limits.cpu: quantity "1e99999": the exponent may have at most four digits, limits.memory: quantity "-1e-99999": the exponent may have at most four digits]`},
		{"another error beside a hash", `{"name":"4e12345","limits":[]}`, "cannot unmarshal array"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			var got value
			err := Unmarshal([]byte(test.data), &got)
			if !strings.Contains(fmt.Sprint(err), test.err) {
				t.Fatal(err)
			}
			if err == nil && got.Limits["cpu"] != resource.MustParse("1") {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestNamesAreNotDecodedTwice(t *testing.T) {
	for text, want := range map[string]bool{
		`{"name":"node12345"}`:    false,
		`{"name":"4e12345"}`:      true,
		"k8s\x00\x0a\x6ee12345":   true, // the byte before is a length
		`{"time":"2026-01-01T0"}`: false,
	} {
		if _, found := mask([]byte(text)); found != want {
			t.Errorf("%q is masked: %t", text, found)
		}
	}
}

// FuzzMask checks that no quantity with a large exponent can be read in what is masked.
func FuzzMask(f *testing.F) {
	for _, text := range []string{"1e-99999", "e99999", "+1.5E000012345", "1e9999", "1e1e99999"} {
		f.Add(text)
	}
	large := regexp.MustCompile(`^[+-]?[0-9.]*[eE][+-]?0*[1-9][0-9]{4,}$`)
	f.Fuzz(func(t *testing.T, text string) {
		masked, found := mask([]byte(text))
		if !large.MatchString(text) {
			return
		}
		if _, err := resource.ParseQuantity(string(masked)); !found || !errors.Is(err, resource.ErrFormatWrong) {
			t.Errorf("%q is masked as %q: %v", text, masked, err)
		}
	})
}

func BenchmarkMask(b *testing.B) {
	data := []byte(strings.Repeat(`{"name":"node12345","image":"registry.example.org/web@sha256:0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"},`, 40))
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		mask(data)
	}
}
