package bodycheck

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"
)

// hugeExponent matches a number whose exponent has more than four digits.
var hugeExponent = regexp.MustCompile(`^[+-]?[0-9.]+[eE][+-]?0*[1-9][0-9]{4,}$`)

// selectQuantity selects bodies of types with quantities, which may not have
// exponents of more than four digits.
//
// A quantity may be written with a decimal exponent, "1e3". The library
// computes with it exactly: reading 1e-999999999, or comparing 1e999999999 with
// anything, makes a number of a billion digits, which takes minutes of a
// processor and a gigabyte, and cannot be interrupted. Real quantities end at
// 2^63. The check costs nothing for kinds without quantities, and one pass over
// the bytes for the others.
func selectQuantity(typeOf func(schema.GroupVersionResource) *node) func(req *http.Request) Func {
	return func(req *http.Request) Func {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || req.Method != http.MethodPost && req.Method != http.MethodPut && req.Method != http.MethodPatch {
			return nil
		}
		t := typeOf(schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource})
		if t == nil {
			return nil
		}
		contentType := req.Header.Get("Content-Type")
		return func(body []byte) ([]byte, error) {
			if mayHoldHugeExponent(body) {
				if err := checkQuantities(contentType, body, t); err != nil {
					return nil, err
				}
			}
			return body, nil
		}
	}
}

// mayHoldHugeExponent reports whether data holds something that looks like a
// huge exponent, as some hashes do, or an escape sequence that could hide one.
func mayHoldHugeExponent(data []byte) bool {
	for i := 1; i < len(data); i++ {
		switch data[i] {
		case 'e', 'E':
			if c := data[i-1]; (isDigit(c) || c == '.') && startsWithFiveDigits(data[i+1:]) {
				return true
			}
		case '\\':
			if i+1 < len(data) && strings.IndexByte("uUx\n\r", data[i+1]) >= 0 {
				return true
			}
		}
	}
	return false
}

func startsWithFiveDigits(data []byte) bool {
	if len(data) > 0 && (data[0] == '-' || data[0] == '+') {
		data = data[1:]
	}
	const digits = 5
	if len(data) < digits {
		return false
	}
	for _, c := range data[:digits] {
		if !isDigit(c) {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// checkQuantities returns an error if a quantity in data, which is an object of
// the type t or a patch of one, has a huge exponent. It accepts data that it
// cannot read, which the decoder refuses.
func checkQuantities(contentType string, data []byte, t *node) error {
	if strings.Contains(contentType, "protobuf") {
		return checkProtobufQuantities(data)
	}
	if strings.Contains(contentType, "yaml") {
		converted, err := yaml.YAMLToJSON(data)
		if err != nil {
			return nil
		}
		data = converted
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return nil
	}
	if strings.HasPrefix(contentType, string(types.JSONPatchType)) {
		operations, _ := value.([]any)
		for _, operation := range operations {
			o, _ := operation.(map[string]any)
			path, _ := o["path"].(string)
			if err := t.at(path).check(o["value"], path); err != nil {
				return err
			}
		}
		return nil
	}
	return t.check(value, "")
}

// checkProtobufQuantities searches data for the message of a quantity, which
// holds only its text in field 1: a length, the field's tag, a length less by
// two, the text.
func checkProtobufQuantities(data []byte) error {
	const tag = 1<<3 | 2
	for i := 2; i < len(data); i++ {
		length := int(data[i])
		if data[i-1] != tag || int(data[i-2]) != length+2 || i+1+length > len(data) {
			continue
		}
		if text := string(data[i+1 : i+1+length]); hugeExponent.MatchString(text) {
			return exponentError(text, "")
		}
	}
	return nil
}

func exponentError(text, path string) error {
	if path == "" {
		return fmt.Errorf("quantity %q: the exponent may have at most four digits", text)
	}
	return fmt.Errorf("%s: quantity %q: the exponent may have at most four digits", strings.TrimPrefix(path, "."), text)
}
