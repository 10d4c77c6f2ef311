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
	"iter"
	"maps"
	"reflect"
	"slices"
	"unicode"

	"k8s.io/apimachinery/pkg/api/resource"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/internal/protofields"
)

// maxDigits is how many digits an exponent may have, leading zeros aside.
const maxDigits = 4

// errTooLarge is the error of a quantity with a larger exponent.
var errTooLarge = errors.New("the exponent may have at most four digits")

// Check returns an error if a text that is read as a quantity is a number with an exponent of
// more than four digits.
func Check(text string) error {
	if lastDigit([]byte(text)) >= 0 {
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
// Data that has a number with a large exponent, as some labels are, is decoded twice. First it
// is masked: no quantity can be read where these numbers are, and what the function makes of it
// is of no use. If it returns an error, the data is refused. So the limit holds wherever the
// decoder finds quantities: in duplicate fields, and in objects of another kind.
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

// located returns an error that names the fields of JSON that are numbers with too large
// exponents, or nil if none is found: the data may be protobuf.
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
				if key != "metadata" { // which has no quantities
					walk(at.Child(key), v[key])
				}
			}
		case []any:
			for i, item := range v {
				walk(at.Index(i), item)
			}
		case string, json.Number:
			if err := Check(fmt.Sprint(v)); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", at, err))
			}
		}
	}
	walk(nil, value)
	return utilerrors.NewAggregate(errs)
}

// In reports whether JSON has a number with a too large exponent, which no escape hides.
func In(data []byte) bool {
	if mayHave(data) {
		for text := range texts(data) {
			if lastDigit(data[text.start:text.end]) >= 0 {
				return true
			}
		}
	}
	return false
}

// mask returns a copy of data in which numbers with too large exponents are no numbers, and
// reports whether there are any. It changes their last digit, and nothing else: a number is a
// whole text, or a whole field of protobuf, so that neither escapes nor lengths are changed. The
// letter may stand in base64.
func mask(data []byte) (masked []byte, found bool) {
	if !mayHave(data) {
		return nil, false
	}
	if bytes.HasPrefix(data, []byte(protofields.Prefix)) {
		masked = bytes.Clone(data)
		return masked, maskFields(masked[len(protofields.Prefix):], protofields.MaxNesting)
	}
	for text := range texts(data) {
		if at := lastDigit(data[text.start:text.end]); at >= 0 {
			if masked == nil {
				masked = bytes.Clone(data)
			}
			masked[text.start+at] = 'x'
		}
	}
	return masked, masked != nil
}

// maskFields masks a message in place. What is a number may be a message, too, with another
// number in it. Deeper messages than levels are left as they are: decoders do not get them, but
// any data may begin as protobuf does.
func maskFields(message []byte, levels int) (found bool) {
	protofields.Contents(message, func(content []byte) bool {
		if levels > 0 && maskFields(content, levels-1) {
			found = true
		}
		if at := lastDigit(content); at >= 0 {
			content[at], found = 'x', true
		}
		return true
	})
	return found
}

// mayHave reports whether an e is followed by more digits than an exponent may have. It reads
// most data only.
func mayHave(data []byte) bool {
	for i, c := range data {
		if c == 'e' || c == 'E' {
			if _, significant := exponentOf(data[i+1:]); significant > maxDigits {
				return true
			}
		}
	}
	return false
}

// lastDigit returns where a number with a too large exponent has its last digit, or -1 if text is
// no such number. Space around it counts for nothing, as in quantities in JSON. Of other texts it
// reads the beginning only: messages within messages are read once for each level.
func lastDigit(text []byte) int {
	rest := bytes.TrimLeft(bytes.TrimLeftFunc(text, unicode.IsSpace), "+-.0123456789")
	if len(rest) == 0 || rest[0] != 'e' && rest[0] != 'E' {
		return -1
	}
	length, significant := exponentOf(rest[1:])
	rest = rest[1+length:]
	if significant <= maxDigits || len(bytes.TrimSpace(rest)) > 0 {
		return -1
	}
	return len(text) - len(rest) - 1
}

// exponentOf returns the length of the exponent with which a text begins, and how many digits it
// has, leading zeros aside.
func exponentOf(text []byte) (length, significant int) {
	if len(text) > 0 && (text[0] == '-' || text[0] == '+') {
		length++
	}
	for length < len(text) && text[length] == '0' {
		length++
	}
	for length < len(text) && '0' <= text[length] && text[length] <= '9' {
		length++
		significant++
	}
	return length, significant
}

// span is a part of data.
type span struct{ start, end int }

// texts returns the strings of JSON, without their quotes, and its numbers.
func texts(data []byte) iter.Seq[span] {
	return func(yield func(span) bool) {
		for i := 0; i < len(data); {
			text := span{i, i + 1}
			switch c := data[i]; {
			case c == '"':
				text = span{i + 1, endOfString(data, i+1)}
				i = text.end + 1
			case c == '-' || '0' <= c && c <= '9':
				text.end = i + len(data[i:]) - len(bytes.TrimLeft(data[i:], "+-.0123456789eE"))
				i = text.end
			default:
				i++
				continue
			}
			if !yield(text) {
				return
			}
		}
	}
}

// endOfString returns where a string of JSON has its closing quote, or the end of the data.
func endOfString(data []byte, i int) int {
	for ; i < len(data) && data[i] != '"'; i++ {
		if data[i] == '\\' {
			i++
		}
	}
	return min(i, len(data))
}
