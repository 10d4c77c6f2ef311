package bodycheck

import (
	"net/http"

	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/internal/exponent"
)

// selectStrategicValues selects the bodies of strategic merge patches, whose values may not be
// too large for their fields (misfits.walk). The decoder of other bodies refuses such values.
func selectStrategicValues(kinds []*resource.Kind) func(req *http.Request) Func {
	bodies := kindsOfBodies(kinds)
	return func(req *http.Request) Func {
		if req.Method != http.MethodPatch || types.PatchType(mediaType(req)) != types.StrategicMergePatchType {
			return nil
		}
		kind, _, ok := bodies.of(req)
		if !ok {
			return nil
		}
		return func(body []byte) ([]byte, error) {
			if !mayBeTooLarge(body) {
				return body, nil
			}
			var patch map[string]any
			if kjson.UnmarshalCaseSensitivePreserveInts(body, &patch) != nil {
				return body, nil // the handler says what is wrong
			}
			var found misfits // directives of the patch are unknown fields
			found.walk(patch, kind.of, "")
			return body, found.err()
		}
	}
}

// mayBeTooLarge reports whether JSON may have a value that is too large for its field, without
// reading it: a number of ten characters or with an exponent, or a text with an exponent that is
// too large for a quantity, which an escape may hide.
func mayBeTooLarge(data []byte) bool {
	const short = len("999999999")
	inText, number := false, 0
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inText && c == '\\':
			if i++; i < len(data) && data[i] == 'u' {
				return true
			}
		case c == '"':
			inText, number = !inText, 0
		case inText:
		case '0' <= c && c <= '9':
			if number++; number > short {
				return true
			}
		case number > 0 && (c == 'e' || c == 'E'):
			return true
		default:
			number = 0
		}
	}
	return exponent.In(data)
}
