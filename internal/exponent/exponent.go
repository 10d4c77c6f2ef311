// Package exponent owns the limit of the decimal exponents of quantities that
// clients write.
//
// A quantity may be written with a decimal exponent, "1e3". The library computes
// with it exactly: reading 1e-999999999, or comparing 1e999999999 with anything,
// makes a number of a billion digits, which takes minutes of a processor and a
// gigabyte, and cannot be interrupted. Real quantities end at 2^63.
package exponent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxDigits is how many digits an exponent may have, leading zeros aside.
const maxDigits = 4

// errTooLarge is the error of a quantity with a larger exponent.
var errTooLarge = errors.New("the exponent may have at most four digits")

// Check returns an error if a text that is read as a quantity has an exponent of more than
// four digits.
func Check(text string) error {
	if next([]byte(text), 0) >= 0 {
		return fmt.Errorf("quantity %q: %w", text, errTooLarge)
	}
	return nil
}

// Parse is resource.ParseQuantity for texts of clients.
func Parse(text string) (resource.Quantity, error) {
	if err := Check(text); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text)
}

// Unmarshal is json.Unmarshal for values of clients that have quantities.
func Unmarshal(data []byte, into any) error {
	return Decode(data, func(data []byte, masked bool) error {
		if masked {
			return json.Unmarshal(data, reflect.New(reflect.TypeOf(into).Elem()).Interface())
		}
		return json.Unmarshal(data, into)
	})
}

// Decode decodes JSON or protobuf of a client by the function.
//
// Data in which something looks like a number with a large exponent, as some hashes do,
// is decoded twice. First it is masked: no quantity can be read where these numbers are,
// and what the function makes of it is of no use. If it returns an error, the data is
// refused. So the limit holds wherever the decoder finds quantities: in duplicate fields,
// in objects of another kind, and in what is decoded within a decoder.
func Decode(data []byte, decode func(data []byte, masked bool) error) error {
	if masked, found := mask(data); found {
		err := decode(masked, true)
		if errors.Is(err, resource.ErrFormatWrong) || json.Valid(data) && !json.Valid(masked) {
			return cmp.Or(located(data), fmt.Errorf("%w: %w", err, errTooLarge))
		}
		if err != nil {
			return err
		}
	}
	return decode(data, false)
}

// number is a whole text that is read as a number with an exponent.
var number = regexp.MustCompile(`^[+-]?[0-9]*\.?[0-9]*[eE][+-]?[0-9]+$`)

// located returns an error that names the fields of JSON that have numbers with too large
// exponents, or nil if none is found: the data may be protobuf, or escape them.
func located(data []byte) error {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return nil
	}
	var errs []error
	var walk func(at *field.Path, value any)
	walk = func(at *field.Path, value any) {
		switch v := value.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				if key != "metadata" { // which has hashes, and no quantities
					walk(at.Child(key), v[key])
				}
			}
		case []any:
			for i, item := range v {
				walk(at.Index(i), item)
			}
		case string, json.Number:
			text := fmt.Sprint(v)
			if err := Check(text); err != nil && number.MatchString(text) {
				errs = append(errs, fmt.Errorf("%s: %w", at, err))
			}
		}
	}
	walk(nil, value)
	return utilerrors.NewAggregate(errs)
}

// mask returns a copy of data in which numbers with too large exponents are no numbers,
// and reports whether there are any. It replaces their last digit: what looks like an e, and
// the digits after it, may be a length in protobuf or a part of an escape in JSON.
func mask(data []byte) (masked []byte, found bool) {
	for at := next(data, 0); at >= 0; at = next(data, at+1) {
		if masked == nil {
			masked = bytes.Clone(data)
		}
		masked[at] = '?'
	}
	return masked, masked != nil
}

// next returns where, from an index on, the next too large exponent has its last digit, or
// -1. Numbers may have no digits before the exponent, but no letter, unless it is a length in
// protobuf.
func next(data []byte, from int) int {
	inProtobuf := bytes.HasPrefix(data, protobufPrefix)
	for i := from; i < len(data); i++ {
		if c := data[i]; c != 'e' && c != 'E' || i > 0 && isLetter(data[i-1]) && !inProtobuf {
			continue
		}
		start := i + 1
		if start < len(data) && (data[start] == '-' || data[start] == '+') {
			start++
		}
		for start < len(data) && data[start] == '0' {
			start++
		}
		end := start
		for end < len(data) && isDigit(data[end]) {
			end++
		}
		if end-start > maxDigits {
			return end - 1
		}
	}
	return -1
}

// protobufPrefix precedes messages (document 1, section 2).
var protobufPrefix = []byte("k8s\x00")

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
