package patcherror

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

func TestErrorsOfDryRunsAreExplained(t *testing.T) {
	serializer := clientgoscheme.Codecs.WithoutConversion()
	misfit := errors.New(untypedPatch + " (/a; e.com/v1): .spec.a: expected string")
	_, notANumber := strconv.ParseUint("abc", 10, 64)
	for _, test := range []struct {
		rule, method, query string
		err                 error
		read                bool // an object from the store
		code                int32
		message             string
	}{
		{"an apply that does not match the schema", "PATCH", "?dryRun=All", misfit, true, 400, misfit.Error()},
		{"a JSON patch that fails", "PATCH", "?dryRun=All", inapplicable(), true, 422, `operation 0 of the patch, remove "/data/a", failed`},
		{"a wrong type", "PATCH", "?dryRun=All", undecodable("{}", "json: cannot unmarshal"), true, 400, "json: cannot unmarshal"},
		{"a version that is no number", "PATCH", "?dryRun=All", notANumber, true, 400, `metadata.resourceVersion: Invalid value: "abc"`},
		{"another error stays", "PATCH", "?dryRun=All", errors.New("disk"), true, 500, "disk"},
		{"an invalid object stays", "PATCH", "?dryRun=All", apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "a", nil), true, 422, `ConfigMap "a" is invalid`},
		{"an error before the store was read stays", "PATCH", "?dryRun=All", misfit, false, 500, misfit.Error()},
		{"another patch passes, as the store explains it", "PATCH", "", misfit, true, 500, misfit.Error()},
		{"a conflict passes", "PATCH", "?dryRun=All", apierrors.NewConflict(schema.GroupResource{}, "a", nil), true, 409, "Operation cannot be fulfilled"},
	} {
		for _, accept := range []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"} {
			t.Run(test.rule+"/"+accept, func(t *testing.T) {
				handler := DryRunFilter(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					if test.read {
						Read(req.Context(), &corev1.ConfigMap{})
					}
					responsewriters.ErrorNegotiated(test.err, serializer, schema.GroupVersion{}, w, req)
				}), serializer)
				ctx := WithPatch(t.Context(), types.JSONPatchType, []byte(`[{"op":"remove","path":"/data/a"}]`), asIs)
				req := httptest.NewRequestWithContext(ctx, test.method, "/"+test.query, nil)
				req.Header.Set("Accept", accept)
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, req)
				var status metav1.Status
				if _, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(w.Body.Bytes(), nil, &status); err != nil {
					t.Fatal(err)
				}
				if w.Code != int(test.code) || status.Code != test.code || !strings.Contains(status.Message, test.message) {
					t.Errorf("got %d %+v, want %d %q", w.Code, status, test.code, test.message)
				}
			})
		}
	}
}

func TestAResponseWithoutAnErrorPasses(t *testing.T) {
	handler := DryRunFilter(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := json.NewEncoder(w).Encode("made"); err != nil {
			t.Error(err)
		}
	}), clientgoscheme.Codecs.WithoutConversion())
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPatch, "/?dryRun=All", nil))
	if w.Code != http.StatusOK || w.Body.String() != "\"made\"\n" {
		t.Errorf("got %d %q", w.Code, w.Body)
	}
}

func TestErrorsOfAClientsPatchAreNotLoggedAsErrors(t *testing.T) {
	var logged []string
	handler := ErrorHandler(func(_ context.Context, err error, _ string, _ ...any) { logged = append(logged, err.Error()) })
	for _, text := range []string{
		notStatus + `: &errors.errorString{s:"` + untypedPatch + `"}: ` + untypedPatch + " (/a; v1): .spec",
		notStatus + ": &e{}: cannot: " + undecodableValue + "v1",
		notStatus + ": &e{}: " + unknownDirective + "bogus",
		notStatus + `: &strconv.NumError{}: strconv.ParseUint: parsing "abc": invalid syntax`,
		notStatus + ": disk",
		"other: " + untypedPatch,
	} {
		handler(t.Context(), errors.New(text), "Unhandled Error")
	}
	if want := []string{notStatus + ": disk", "other: " + untypedPatch}; !slices.Equal(logged, want) {
		t.Errorf("logged %q, want %q", logged, want)
	}
}
