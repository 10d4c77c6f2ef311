package registry_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/core"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/registry/registrytest"
)

// seen is an admission plugin that keeps the token requests of both phases.
type seen struct {
	mutating, validating []*authenticationv1.TokenRequest
}

func (s *seen) Handles(admission.Operation) bool { return true }

func (s *seen) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if r, ok := a.GetObject().(*authenticationv1.TokenRequest); ok {
		s.mutating = append(s.mutating, r.DeepCopy())
	}
	return nil
}

func (s *seen) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if r, ok := a.GetObject().(*authenticationv1.TokenRequest); ok {
		s.validating = append(s.validating, r.DeepCopy())
	}
	return nil
}

// issuer issues the same token for all requests.
type issuer struct{}

func (issuer) Issue(_ context.Context, r resource.TokenRequest) (*resource.Token, error) {
	return &resource.Token{Token: "issued", Lifetime: r.Lifetime}, nil
}

// startAccounts serves service accounts, of which shop/till exists, with that UID, and issues
// tokens for the audience api.
func startAccounts(t *testing.T, plugin admission.Interface) (s *registrytest.Stack, uid string) {
	t.Helper()
	s = registrytest.StartWith(t, plugin, slices.DeleteFunc(core.Kinds(), func(d resource.Declaration) bool { return d.Kind().Name != "serviceaccounts" })...)
	s.Env.Tokens, s.Env.Audiences = issuer{}, []string{"api"}
	created := s.Do(http.MethodPost, "/api/v1/namespaces/shop/serviceaccounts", `{apiVersion: v1, kind: ServiceAccount, metadata: {name: till}}`).Want(http.StatusCreated)
	return s, string(created.Object().GetUID())
}

const tillToken = "/api/v1/namespaces/shop/serviceaccounts/till/token"

func TestAdmissionSeesATokenRequestWithItsDefaults(t *testing.T) {
	plugin := &seen{}
	s, uid := startAccounts(t, plugin)
	s.Do(http.MethodPost, tillToken, `{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, status: {token: forged}}`).Want(http.StatusCreated, `"token":"issued"`)
	if len(plugin.mutating) != 1 || len(plugin.validating) != 1 {
		t.Fatalf("mutating admission saw %v, validating admission %v", plugin.mutating, plugin.validating)
	}
	// The audiences are not those that the client asks for: NodeRestriction distinguishes them.
	if spec := plugin.mutating[0].Spec; ptr.Deref(spec.ExpirationSeconds, 0) != 3600 || spec.Audiences != nil {
		t.Errorf("mutating admission saw %+v", spec)
	}
	got := plugin.validating[0]
	if ptr.Deref(got.Spec.ExpirationSeconds, 0) != 3600 || !slices.Equal(got.Spec.Audiences, []string{"api"}) {
		t.Errorf("validating admission saw %+v", got.Spec)
	}
	if got.Namespace != "shop" || got.Name != "till" || string(got.UID) != uid || time.Since(got.CreationTimestamp.Time).Abs() > time.Minute {
		t.Errorf("validating admission saw %+v", got.ObjectMeta)
	}
	if got.Status != (authenticationv1.TokenRequestStatus{}) {
		t.Errorf("validating admission saw the status of the client: %+v", got.Status)
	}
}

func TestAnInvalidTokenRequestDoesNotReachValidatingAdmission(t *testing.T) {
	plugin := &seen{}
	s, _ := startAccounts(t, plugin)
	for _, test := range []struct {
		rule, path, body string
		code             int
		reason           metav1.StatusReason
	}{
		{"the UID of another account", tillToken, `{metadata: {uid: other}}`, http.StatusConflict, metav1.StatusReasonConflict},
		{"too short a lifetime", tillToken, `{spec: {expirationSeconds: 1}}`, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid},
		{"no account", "/api/v1/namespaces/shop/serviceaccounts/absent/token", `{}`, http.StatusNotFound, metav1.StatusReasonNotFound},
	} {
		answer := s.Do(http.MethodPost, test.path, test.body)
		if reason := answer.Want(test.code).Status().Reason; reason != test.reason || plugin.validating != nil {
			t.Errorf("%s: reason %s, validating admission saw %v", test.rule, reason, plugin.validating)
		}
	}
}
