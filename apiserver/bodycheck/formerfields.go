package bodycheck

import (
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/warning"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/release/fields"
)

// selectFormerFields selects the bodies of writes in which there may be fields that the
// release has and the types no longer do. They are no unknown fields: such a release
// accepted them, and most ignored them, too. They are dropped, with a warning unless
// fieldValidation is Ignore.
func selectFormerFields(kinds []*resource.Kind, lacking *fields.Fields) func(req *http.Request) Func {
	former := lacking.Former()
	if former == nil {
		return func(*http.Request) Func { return nil }
	}
	bodies := kindsOfBodies(kinds)
	return func(req *http.Request) Func {
		kind, _, ok := bodies.of(req)
		if !ok || mediaType(req) == runtime.ContentTypeProtobuf {
			return nil // protobuf has no unknown fields
		}
		n := former.Of(kind.gvk, kind.of)
		if n == nil {
			return nil
		}
		return func(body []byte) ([]byte, error) {
			if !n.MayLack(body) {
				return body, nil
			}
			rest, _, found := cut(req, body, n)
			if len(found) > 0 && req.URL.Query().Get("fieldValidation") != metav1.FieldValidationIgnore {
				for _, text := range found {
					warning.AddWarning(req.Context(), "", fmt.Sprintf("field %s is not stored: the release has it, this server does not", strings.TrimPrefix(text, "unknown field ")))
				}
			}
			return rest, nil
		}
	}
}
