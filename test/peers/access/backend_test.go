package access

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// startBackend starts the webhooks of webhooks.yaml. The path says what they answer.
func startBackend(t *testing.T) *httptest.Server {
	t.Helper()
	backend := httptest.NewUnstartedServer(http.HandlerFunc(reviewAdmission))
	backend.EnableHTTP2 = true
	backend.StartTLS()
	t.Cleanup(backend.Close)
	return backend
}

// raw are the answers that are no valid reviews of the request, by path.
var raw = map[string]string{
	"/garbage":     "garbage",
	"/other-uid":   `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"other","allowed":true}}`,
	"/other-kind":  `{"apiVersion":"v1","kind":"ConfigMap","response":{"allowed":true}}`,
	"/no-response": `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`,
}

// refusals are the statuses of refusals by path.
var refusals = map[string]*metav1.Status{
	"/refuse":         nil,
	"/refuse-message": {Message: "not like this"},
	"/refuse-code":    {Code: http.StatusTeapot, Message: "a teapot", Reason: "Teapot"},
	"/refuse-status": {
		Status: metav1.StatusFailure, Code: http.StatusConflict, Message: "as a whole", Reason: metav1.StatusReasonConflict,
		Details: &metav1.StatusDetails{Name: "x", Kind: "y", Causes: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: "data", Message: "no"}}},
	},
}

// patches are the patches by path.
var patches = map[string]string{
	"/label":         `[{"op": "add", "path": "/metadata/labels/by", "value": "webhook"}]`,
	"/add-b":         `[{"op": "add", "path": "/metadata/labels/b", "value": "x"}]`,
	"/bad-patch":     `not JSON`,
	"/failing-patch": `[{"op": "remove", "path": "/data/none"}]`,
	"/wrong-type":    `[{"op": "add", "path": "/metadata/labels/by", "value": "webhook"}]`,
	"/no-type":       `[{"op": "add", "path": "/metadata/labels/by", "value": "webhook"}]`,
	"/break":         `[{"op": "add", "path": "/metadata/labels/by", "value": "-"}]`,
	"/break-type":    `[{"op": "replace", "path": "/data", "value": "text"}]`,
	"/unknown-field": `[{"op": "add", "path": "/unknown", "value": 1}]`,
	"/change-name":   `[{"op": "replace", "path": "/metadata/name", "value": "other"}]`,
	"/empty-patch":   `[]`,
}

// patchTypes are those that are not JSON patches, by path.
var patchTypes = map[string]*admissionv1.PatchType{"/wrong-type": new(admissionv1.PatchType("Merge")), "/no-type": nil}

func reviewAdmission(w http.ResponseWriter, req *http.Request) {
	content, err := io.ReadAll(req.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(content, &review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if answer, ok := raw[req.URL.Path]; ok {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer) // the server may have given up
		return
	}
	switch req.URL.Path {
	case "/slow":
		<-req.Context().Done()
		return
	case "/error":
		http.Error(w, "the webhook is broken", http.StatusInternalServerError)
		return
	}
	if review.Response, err = response(req.URL.Path, review.Request); err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	review.Response.UID, review.Request = review.Request.UID, nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // the server may have given up
}

// response is a valid response, but for its UID.
func response(path string, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	if status, ok := refusals[path]; ok {
		return &admissionv1.AdmissionResponse{Result: status}, nil
	}
	patch, ok := patches[path]
	switch {
	case ok:
	case path == "/accept":
		return &admissionv1.AdmissionResponse{Allowed: true}, nil
	case path == "/warn":
		return &admissionv1.AdmissionResponse{
			Allowed: true, Warnings: []string{"first", "second", strings.Repeat("long ", 100)},
			AuditAnnotations: map[string]string{"key": "value", "": "no key"},
		}, nil
	case path == "/echo":
		message, err := described(request)
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: message}}, err
	case path == "/saw-b":
		patch = fmt.Sprintf(`[{"op": "add", "path": "/metadata/labels/saw", "value": "%t"}]`, strings.Contains(string(request.Object.Raw), `"b":"x"`))
	default:
		return nil, fmt.Errorf("no webhook at %s", path)
	}
	kind, ok := patchTypes[path]
	if !ok {
		kind = new(admissionv1.PatchTypeJSONPatch)
	}
	return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(patch), PatchType: kind}, nil
}

// described returns a request without what each server chooses itself.
func described(request *admissionv1.AdmissionRequest) (string, error) {
	cleaned := *request
	cleaned.UID = types.UID("")
	for _, object := range []*[]byte{&cleaned.Object.Raw, &cleaned.OldObject.Raw} {
		if len(*object) == 0 {
			continue
		}
		var fields map[string]any
		if err := json.Unmarshal(*object, &fields); err != nil {
			return "", err
		}
		withoutOwn(fields)
		content, err := json.Marshal(fields)
		if err != nil {
			return "", err
		}
		*object = content
	}
	content, err := json.Marshal(cleaned)
	return string(content), err
}
