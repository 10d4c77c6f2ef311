package apiserver_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/admission"
)

// panics is an admission plugin that panics when a config map named broken is created.
type panics struct{ *admission.Handler }

// Validate implements admission.ValidationInterface.
func (panics) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetName() == "broken" {
		panic("broken on purpose")
	}
	return nil
}

// TestARequestWhoseHandlerPanicsIsAudited: its last stage is Panic, which a policy or one of
// its rules can omit, and the server goes on.
func TestARequestWhoseHandlerPanicsIsAudited(t *testing.T) {
	const received, panicked, complete = "RequestReceived 0", "Panic 500", "ResponseComplete 201"
	for _, test := range []struct {
		policy, rule string // the stages that they omit
		want         []string
	}{
		{`[]`, `[]`, []string{received, panicked, received, complete}},
		{`["RequestReceived"]`, `[]`, []string{panicked, complete}},
		{`["Panic"]`, `[]`, []string{received, received, complete}},
		{`["RequestReceived"]`, `["Panic"]`, []string{complete}},
	} {
		t.Run(test.policy+" "+test.rule, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "audit.log")
			o, _ := newOptions(t)
			o.Audit.PolicyFile = write(t, fmt.Sprintf(`{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": %s, "rules": [
				{"level": "Metadata", "users": ["admin"], "resources": [{"group": "", "resources": ["configmaps"]}], "omitStages": %s}, {"level": "None"}]}`, test.policy, test.rule))
			o.Audit.LogOptions.Path = log
			o.Admission.Plugins.Register("Panics", func(io.Reader) (admission.Interface, error) {
				return panics{admission.NewHandler(admission.Create)}, nil
			})
			o.Admission.RecommendedPluginOrder = append(o.Admission.RecommendedPluginOrder, "Panics")
			r := start(t, o)
			const path = "/api/v1/namespaces/default/configmaps"
			// The server may end the stream without an answer.
			if code, body, err := r.try(t, adminToken, http.MethodPost, path, `{"metadata": {"name": "broken"}}`); err == nil && code != http.StatusInternalServerError {
				t.Errorf("the request is answered with %d %s", code, body)
			}
			if code, body := r.do(t, http.MethodPost, path, `{"metadata": {"name": "whole"}}`, false); code != http.StatusCreated {
				t.Errorf("the request after it is answered with %d %s", code, body)
			}
			r.stop(t)
			var got []string
			for _, e := range auditEvents(t, log) {
				code := int32(0)
				if e.ResponseStatus != nil {
					code = e.ResponseStatus.Code
				}
				got = append(got, fmt.Sprintf("%s %d", e.Stage, code))
				if e.Stage == "Panic" && !strings.Contains(e.ResponseStatus.Message, "broken on purpose") {
					t.Errorf("the status is %v", e.ResponseStatus)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("recorded %v, want %v", got, test.want)
			}
		})
	}
}
