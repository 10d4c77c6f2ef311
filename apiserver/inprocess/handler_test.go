package inprocess

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/audit"
)

func TestARequestOfTheServerIsNoPartOfTheAuditEventOfAClientsRequest(t *testing.T) {
	client := audit.WithAuditContext(t.Context())
	audit.WithAuditID(client, "of-the-client")
	served := false
	Chain(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		served = true
		if own := audit.AuditContextFrom(req.Context()); own == nil || own == audit.AuditContextFrom(client) {
			t.Errorf("the request has the audit context %v", own)
		}
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(client, http.MethodGet, "/api/v1", nil))
	if id, _ := audit.AuditIDFrom(client); !served || id != "of-the-client" {
		t.Errorf("served: %t; the client's request has the audit ID %s", served, id)
	}
}
