// Package patcherror makes the errors of updates and patches name the field or
// the operation that is at fault, and nothing else of the object.
package patcherror

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sort"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"

	"svc.dev/svc/internal/exponent"
)

type patchKey struct{}

// patch is the body of a PATCH request.
type patch struct {
	mediaType types.PatchType
	body      []byte
	versioned Versioned
}

// Versioned returns an object of the store in the version of a request, with its apiVersion
// and kind, which is the object that the client's patch describes. It returns an error if
// the object is not of the kind of the request's body, as that of a scale is not.
type Versioned func(current runtime.Object) (runtime.Object, error)

// Explains reports whether Explain needs the body of a patch of the media type.
func Explains(mediaType types.PatchType) bool {
	return mediaType == types.JSONPatchType || mediaType == types.StrategicMergePatchType
}

// WithPatch returns a context that holds the body of a patch for Explain.
func WithPatch(ctx context.Context, mediaType types.PatchType, body []byte, versioned Versioned) context.Context {
	return context.WithValue(ctx, patchKey{}, patch{mediaType, body, versioned})
}

// Info returns the same changes as info, with errors that Explain has translated.
func Info(info rest.UpdatedObjectInfo) rest.UpdatedObjectInfo { return explained{info} }

type explained struct{ rest.UpdatedObjectInfo }

// UpdatedObject implements rest.UpdatedObjectInfo.
func (e explained) UpdatedObject(ctx context.Context, current runtime.Object) (runtime.Object, error) {
	changed, err := e.UpdatedObjectInfo.UpdatedObject(ctx, current)
	if err == nil {
		// The store does the same next, and answers with an internal error.
		_, err = storage.APIObjectVersioner{}.ObjectResourceVersion(changed)
	}
	if err != nil {
		return nil, Explain(ctx, err, current)
	}
	return changed, nil
}

// Explain translates an error of changing current, as the request of ctx
// describes:
//
//   - A patch that makes an object that cannot be decoded, or not strictly, is
//     answered with 400, as such an object in a PUT is (document 1, section 6).
//     The library answers 422 and prints the object, which may be a secret.
//   - A JSON patch that cannot be applied is answered with 422 (KEP-2885), with
//     the operation and the reason, which the library drops.
//   - A server-side apply that does not match the schema, a value that cannot be
//     decoded, a strategic merge patch with an invalid directive, or with an element
//     that does not fit the list, and a metadata.resourceVersion that is not a number
//     are answered with 400. The library answers with an internal error.
//
// Other errors stay as they are.
func Explain(ctx context.Context, err error, current runtime.Object) error {
	var number *strconv.NumError
	if errors.As(err, &number) && number.Func == "ParseUint" {
		return apierrors.NewBadRequest(fmt.Sprintf("metadata.resourceVersion: Invalid value: %q: must be a version that the server has returned", number.Num))
	}
	given, _ := ctx.Value(patchKey{}).(patch)
	var answered apierrors.APIStatus
	if !errors.As(err, &answered) {
		if text := clientError(given.mediaType, err.Error()); text != "" {
			return apierrors.NewBadRequest(text)
		}
		return err
	}
	status := answered.Status()
	if status.Code != http.StatusUnprocessableEntity || status.Details == nil || status.Details.Kind != "" {
		return err
	}
	if causes := status.Details.Causes; len(causes) == 1 && causes[0].Field == "patch" {
		return apierrors.NewBadRequest(decodeError(given, causes[0], current))
	}
	if given.mediaType != types.JSONPatchType {
		return err
	}
	if status.Message = operationError(given, current); status.Message == "" {
		return err
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// These are parts of the errors of a client's patch for which the library has no
// types: of a server-side apply whose body does not match the schema, and of one whose
// values cannot be decoded, such as a quantity.
const (
	untypedPatch     = "failed to create typed patch object"
	undecodableValue = "unable to convert unstructured object to "
)

// These begin the errors of strategic merge patches with an invalid $patch, or of which an
// element or a directive does not fit the object. After the colon follow elements of the
// object, which may be secret.
const (
	unknownDirective = "unknown patch type: "
	elementOfList    = "map: map["
	wrongDirective   = "expected a "
	wrongOrder       = "The order in patch list:"
	wrongOrderItem   = "value for key "
	differentTypes   = "list element types are not identical: "
	wrongElementType = "invalid element type in merging list:"
	unknownField     = "unable to find api field "
)

// noMergeKey follows an element of the patch or of the stored object.
const noMergeKey = " does not contain declared merge key"

// clientError returns the message for an error of a client's patch, on one line and without
// elements of the object, or "" if the error is another.
func clientError(mediaType types.PatchType, text string) string {
	line := strings.Join(strings.Fields(text), " ")
	if strings.Contains(text, undecodableValue) || strings.HasPrefix(text, untypedPatch) {
		return line
	}
	if mediaType != types.StrategicMergePatchType {
		return ""
	}
	for _, beginning := range []string{differentTypes, wrongElementType} {
		if strings.HasPrefix(text, beginning) {
			return strings.TrimRight(beginning, ": ")
		}
	}
	if _, after, found := strings.Cut(text, noMergeKey); found && strings.HasPrefix(text, elementOfList) {
		return "an element of a list" + noMergeKey + after
	}
	for _, beginning := range []string{unknownDirective, wrongDirective, wrongOrder, wrongOrderItem, unknownField} {
		if strings.HasPrefix(text, beginning) {
			return line
		}
	}
	return ""
}

// decodeError returns why an object cannot be decoded. The message of the cause
// has the object, quoted, before it. A strategic merge patch has Go types decoded
// without their fields' names; decoding the patch itself gives them.
func decodeError(given patch, cause metav1.StatusCause, current runtime.Object) string {
	message := strings.TrimPrefix(cause.Message, "Invalid value: ")
	if quoted, err := strconv.QuotedPrefix(message); err == nil {
		message = strings.TrimPrefix(message[len(quoted):], ": ")
	}
	if given.mediaType == types.StrategicMergePatchType && !strings.HasPrefix(message, "strict decoding error") {
		if seen, err := given.versioned(current); err == nil {
			into := reflect.New(reflect.TypeOf(seen).Elem()).Interface()
			if err := exponent.Unmarshal(given.body, into); err != nil {
				return err.Error()
			}
		}
	}
	return message
}

// operationError returns which operation of a JSON patch cannot be applied to
// current, and why. It is empty when all can, or when current cannot be shown as the
// client sees it.
func operationError(given patch, current runtime.Object) string {
	operations, err := jsonpatch.DecodePatch(given.body)
	if err != nil {
		return ""
	}
	seen, err := given.versioned(current)
	if err != nil {
		return ""
	}
	object, err := utiljson.Marshal(seen)
	if err != nil {
		return ""
	}
	// Each application encodes the whole object, so the shortest failing beginning of the
	// patch is found by bisection.
	failed := sort.Search(len(operations), func(i int) bool {
		_, err := operations[:i+1].Apply(object)
		return err != nil
	})
	if failed == len(operations) {
		return ""
	}
	_, err = operations[:failed+1].Apply(object)
	path, _ := operations[failed].Path() // "unknown" if there is none
	return fmt.Sprintf("operation %d of the patch, %s %q, failed: %v", failed, operations[failed].Kind(), path, err)
}
