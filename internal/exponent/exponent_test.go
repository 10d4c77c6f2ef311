package exponent

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"svc.dev/svc/internal/protofields"
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

func TestOnlyWholeTextsAreMasked(t *testing.T) {
	const inProtobuf = protofields.Prefix
	for data, want := range map[string]string{
		`{"name":"node12345"}`:                                "",
		`{"commit":"4e12345"}`:                                `{"commit":"4e1234x"}`,
		`{"a":["\\", " 1e-99999 ",-1E+0099999]}`:              `{"a":["\\", " 1e-9999x ",-1E+009999x]}`,
		`{"a":"\"","b":"1e99999"}`:                            `{"a":"\"","b":"1e9999x"}`,
		`{"data":"aGVsbG8+e12345abc="}`:                       "",
		`{"image":"sha256:0e12345"}`:                          "",
		`"1e99999`:                                            `"1e9999x`,
		inProtobuf + "\x2a\x06be1234\x32\x011":                "", // a UID, and the field behind it
		inProtobuf + "\x12\x0a\x0a\x081e-99999":               inProtobuf + "\x12\x0a\x0a\x081e-9999x",
		inProtobuf + "\x7a\x06ae1234\x32\x011\x0a\x071e99999": inProtobuf + "\x7a\x06ae1234\x32\x011\x0a\x071e9999x",
	} {
		if masked, found := mask([]byte(data)); found != (want != "") || found && string(masked) != want {
			t.Errorf("%q is masked as %q: %t, want %q", data, masked, found, want)
		}
	}
}

// A body that no decoder of protobuf gets may begin like protobuf, and have any number of levels.
func TestMessagesDeeperThanDecodersReadAreNotWalked(t *testing.T) {
	for levels, want := range map[int]bool{0: true, protofields.MaxNesting: true, protofields.MaxNesting + 1: false} {
		message := []byte("\x0a\x071e99999")
		for range levels {
			message = slices.Concat(binary.AppendUvarint([]byte{0x0a}, uint64(len(message))), message)
		}
		if _, found := mask(slices.Concat([]byte(protofields.Prefix), message)); found != want {
			t.Errorf("below %d levels: found %t", levels, found)
		}
	}
}

// FuzzMask checks that what is masked has no number with a large exponent where a decoder may
// read a quantity.
func FuzzMask(f *testing.F) {
	for _, seed := range []string{
		`"1e-99999"`, `{"a":"+1.5E000012345","a":"1"}`, "\x12\x09\x0a\x071e-99999", "\x0a\x07\x0a\x051e999999",
		"\x7a\x06ae1234\x32\x31" + strings.Repeat("x", 49) + "\x0a\x091e-999999",
		"\x0a\x0c\n\x071e99999999", "\x0a\x34\n01e-" + strings.Repeat("9", 48),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		message, _ := mask(append([]byte(protofields.Prefix), data...))
		var check func(content []byte) bool
		check = func(content []byte) bool {
			if lastDigit(content) >= 0 {
				t.Errorf("%q is masked as %q", data, message)
			}
			protofields.Contents(content, check)
			return true
		}
		protofields.Contents(message[min(len(message), len(protofields.Prefix)):], check)
		if masked, found := mask(data); found && json.Valid(masked) && !bytes.HasPrefix(data, []byte(protofields.Prefix)) && located(masked) != nil {
			t.Errorf("%q is masked as %q", data, masked)
		}
	})
}

func BenchmarkMask(b *testing.B) {
	data := []byte(strings.Repeat(`{"name":"node12345","uid":"be123456","image":"registry.example.org/web@sha256:0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"},`, 40))
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		mask(data)
	}
}
