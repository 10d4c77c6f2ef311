package apps

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestValidateControllerRevision(t *testing.T) {
	for _, test := range []struct {
		rule     string
		revision int64
		data     []byte
		want     []string
	}{
		{"an object is valid", 1, []byte(`{"spec":{}}`), nil},
		{"the revision is not negative", -1, []byte(`{}`), []string{"revision: Invalid value: -1: must be greater than or equal to 0"}},
		{"data is required", 1, nil, []string{"data: Required value: data is mandatory"}},
		{"data is not null", 1, []byte("null"), []string{"data: Required value: data is mandatory"}},
		{"data is an object", 1, []byte("[1]"), []string{"data: Required value: data must be a valid JSON object"}},
		{"data is JSON", 1, []byte("{"), []string{`data: Invalid value: "<value omitted>": error parsing data: unexpected end of JSON input`}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			r := &appsv1.ControllerRevision{Revision: test.revision, Data: runtime.RawExtension{Raw: test.data}}
			resourcetest.Errors(t, controllerRevisions.Validate(r), test.want...)
		})
	}
}

func TestControllerRevisionDataIsImmutable(t *testing.T) {
	old := &appsv1.ControllerRevision{Revision: 1, Data: runtime.RawExtension{Raw: []byte(`{"a":1}`)}}
	r := &appsv1.ControllerRevision{Revision: 2, Data: runtime.RawExtension{Raw: []byte(`{"a":2}`)}}
	if errs := controllerRevisions.ValidateUpdate(r, old); len(errs) != 1 || errs[0].Field != "data" || errs[0].Detail != "field is immutable" {
		t.Errorf("got %v, want that data is immutable", errs)
	}
	r.Data = old.Data
	resourcetest.Errors(t, controllerRevisions.ValidateUpdate(r, old))
}
