// Package quantity refuses quantities with enormous exponents.
//
// A quantity may be written with a decimal exponent, "1e3". The library
// computes with it exactly: reading 1e-999999999, or comparing 1e999999999 with
// anything, makes a number of a billion digits, which takes minutes of a
// processor and a gigabyte, and nothing can interrupt it. Real quantities end
// at 2^63.
package quantity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/apis/resource"
)

// enormous is a number whose exponent has more than four digits.
var enormous = regexp.MustCompile(`^[+-]?[0-9.]+[eE][+-]?0*[1-9][0-9]{4,}$`)

// Filter answers 400 to requests that write an object with such a quantity.
// Bodies of more than maxBytes pass, as the handler refuses them without
// decoding. It costs nothing for kinds without quantities, and a look at each
// byte for the others.
func Filter(handler http.Handler, s runtime.NegotiatedSerializer, kinds []*resource.Kind, maxBytes int64) http.Handler {
	nodes := typesWithQuantities(kinds)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || req.Body == nil || req.Method != http.MethodPost && req.Method != http.MethodPut && req.Method != http.MethodPatch {
			handler.ServeHTTP(w, req)
			return
		}
		t, found := nodes[schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}]
		if !found {
			handler.ServeHTTP(w, req)
			return
		}
		data, err := read(req, maxBytes+1)
		if err == nil && int64(len(data)) <= maxBytes && suspicious(data) {
			err = judge(req.Header.Get("Content-Type"), data, t)
		}
		if err != nil {
			responsewriters.ErrorNegotiated(apierrors.NewBadRequest(err.Error()), s, schema.GroupVersion{}, w, req)
			return
		}
		req.Body = body{io.MultiReader(bytes.NewReader(data), req.Body), req.Body}
		handler.ServeHTTP(w, req)
	})
}

// trusted is how much memory the length that a client announces is worth.
const trusted = 64 << 10

// read reads the body of a request up to most bytes.
func read(req *http.Request, most int64) ([]byte, error) {
	var data bytes.Buffer
	data.Grow(int(max(0, min(req.ContentLength, trusted))) + bytes.MinRead)
	_, err := data.ReadFrom(io.LimitReader(req.Body, most))
	return data.Bytes(), err
}

// body is a request's body of which a part was read already.
type body struct {
	io.Reader
	io.Closer
}

// suspicious reports whether there is something in data that looks like an
// enormous exponent (so does many a hash), or an escape that could hide one.
func suspicious(data []byte) bool {
	for i := 1; i < len(data); i++ {
		switch data[i] {
		case 'e', 'E':
			if c := data[i-1]; (isDigit(c) || c == '.') && fiveDigits(data[i+1:]) {
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

func fiveDigits(data []byte) bool {
	if len(data) > 0 && (data[0] == '-' || data[0] == '+') {
		data = data[1:]
	}
	const least = 5
	if len(data) < least {
		return false
	}
	for _, c := range data[:least] {
		if !isDigit(c) {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// judge looks for enormous quantities where an object of the type has
// quantities. What it cannot read is the decoder's to refuse.
func judge(contentType string, data []byte, t *node) error {
	if strings.Contains(contentType, "protobuf") {
		return judgeProtobuf(data)
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
			if err := t.at(path).judge(o["value"], path); err != nil {
				return err
			}
		}
		return nil
	}
	return t.judge(value, "")
}

// judgeProtobuf looks for the message of a quantity, which holds nothing but
// its text in field 1: a length, the field's tag, a length less by two, the text.
func judgeProtobuf(data []byte) error {
	const tag = 1<<3 | 2
	for i := 2; i < len(data); i++ {
		length := int(data[i])
		if data[i-1] != tag || int(data[i-2]) != length+2 || i+1+length > len(data) {
			continue
		}
		if text := string(data[i+1 : i+1+length]); enormous.MatchString(text) {
			return refusal(text, "")
		}
	}
	return nil
}

func refusal(text, path string) error {
	if path == "" {
		return fmt.Errorf("quantity %q: the exponent may have at most four digits", text)
	}
	return fmt.Errorf("%s: quantity %q: the exponent may have at most four digits", strings.TrimPrefix(path, "."), text)
}
