package apiserver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/release"
)

// stage is a server in the modes Node and RBAC. mallory may do what the tests grant, n1 is
// a node, and each user's token is the name.
type stage struct {
	*running
	t *testing.T
}

// newStage starts the server. mallory has the rules; configure changes the options first.
func newStage(t *testing.T, rules string, configure ...func(*options.Options)) stage {
	t.Helper()
	o, _ := newOptions(t)
	for _, c := range configure {
		c(o)
	}
	s := startStage(t, o)
	if rules != "" {
		s.must(http.MethodPost, rbacPath+"/clusterroles", `{"metadata": {"name": "mallory"}, "rules": [`+rules+`]}`)
		s.must(http.MethodPost, rbacPath+"/clusterrolebindings", `{"metadata": {"name": "mallory"}, "subjects": [{"kind": "User", "name": "mallory"}],
			"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "mallory"}}`)
		await(t, func() (int, string) {
			return s.request("mallory", http.MethodGet, "/api/v1/namespaces/default/services", "", nil)
		}, http.StatusOK)
	}
	return s
}

// startStage starts the server with options of newOptions.
func startStage(t *testing.T, o *options.Options) stage {
	t.Helper()
	if len(o.Authorization.Modes) == 0 {
		o.Authorization.Modes = []string{authorization.Node, authorization.RBAC}
	}
	users := "admin,admin,1,system:masters\nmallory,mallory,2\nn1,system:node:n1,3,system:nodes\n"
	if err := os.WriteFile(o.Authentication.TokenAuthFile, []byte(users), 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	o.ServiceAccounts.SigningKeyFile = filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(o.ServiceAccounts.SigningKeyFile, key, 0o600); err != nil {
		t.Fatal(err)
	}
	o.ServiceAccounts.KeyFiles, o.ServiceAccounts.Issuers = []string{o.ServiceAccounts.SigningKeyFile}, []string{"https://issuer"}
	return stage{start(t, o), t}
}

// known is a rule by whose effect newStage notices that the rules are in force.
const known = `{"apiGroups": [""], "resources": ["services"], "verbs": ["list"]},`

// must makes a request of the administrator that succeeds, and returns the response.
func (s stage) must(method, path, body string) string {
	s.t.Helper()
	code, answer := s.request("admin", method, path, body, nil)
	if code >= http.StatusMultipleChoices {
		s.t.Fatalf("%s %s: %d %s", method, path, code, answer)
	}
	return answer
}

// request makes a request with a token and headers. Its path is sent as it is.
func (s stage) request(token, method, path, body string, header map[string]string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	raw, query, _ := strings.Cut(path, "?")
	req.URL.Opaque, req.URL.RawQuery = "//"+req.URL.Host+raw, query
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := s.client.Transport.RoundTrip(req) // which follows no redirect
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(content)
}

func TestImpersonationTakesARightToEachPartOfTheUser(t *testing.T) {
	s := newStage(t, known+`{"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["bob"]}`)
	for _, test := range []struct {
		rule   string
		token  string
		header map[string]string
		want   int
	}{
		{"the user that the role names", "mallory", map[string]string{"Impersonate-User": "bob"}, http.StatusCreated},
		{"another user", "mallory", map[string]string{"Impersonate-User": "admin"}, http.StatusForbidden},
		{"a group", "mallory", map[string]string{"Impersonate-User": "bob", "Impersonate-Group": "system:masters"}, http.StatusForbidden},
		{"a UID", "mallory", map[string]string{"Impersonate-User": "bob", "Impersonate-Uid": "1"}, http.StatusForbidden},
		{"an extra field", "mallory", map[string]string{"Impersonate-User": "bob", "Impersonate-Extra-Scopes": "all"}, http.StatusForbidden},
		{"a service account", "mallory", map[string]string{"Impersonate-User": "system:serviceaccount:kube-system:root"}, http.StatusForbidden},
		{"a node", "mallory", map[string]string{"Impersonate-User": "system:node:n1"}, http.StatusForbidden},
		{"a group without a user", "mallory", map[string]string{"Impersonate-Group": "system:masters"}, http.StatusBadRequest},
		{"an anonymous client", "", map[string]string{"Impersonate-User": "admin"}, http.StatusForbidden},
		{"a node that impersonates", "n1", map[string]string{"Impersonate-User": "system:node:n2"}, http.StatusForbidden},
	} {
		const review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
		if code, body := s.request(test.token, http.MethodPost, review, `{}`, test.header); code != test.want || code == http.StatusCreated && strings.Contains(body, "mallory") {
			t.Errorf("%s: %d %s, want %d", test.rule, code, body, test.want)
		}
	}
}

func TestConstrainedImpersonationHasTheGateOfTheRelease(t *testing.T) {
	const rights = known + `{"apiGroups": ["authentication.k8s.io"], "resources": ["users"], "verbs": ["impersonate:user-info"], "resourceNames": ["bob"]},
		{"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["impersonate-on:user-info:create"]}`
	for _, test := range []struct {
		minor int
		want  int
	}{{28, http.StatusForbidden}, {35, http.StatusForbidden}, {36, http.StatusCreated}} {
		s := newStage(t, rights, func(o *options.Options) { o.Release = release.Release{Major: 1, Minor: test.minor} })
		const review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
		if code, body := s.request("mallory", http.MethodPost, review, `{}`, map[string]string{"Impersonate-User": "bob"}); code != test.want {
			t.Errorf("release 1.%d: %d %s, want %d", test.minor, code, body, test.want)
		}
	}
}

func TestBetaPoliciesActWithTheirGate(t *testing.T) {
	s := newStage(t, "", func(o *options.Options) {
		o.Release = release.Release{Major: 1, Minor: 28}
		o.RuntimeConfig = map[string]string{"admissionregistration.k8s.io/v1beta1": "true"}
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, featuregate.Feature("ValidatingAdmissionPolicy"), true)
	})
	const path = "/apis/admissionregistration.k8s.io/v1beta1/"
	s.must(http.MethodPost, path+"validatingadmissionpolicies", `{"metadata": {"name": "none"}, "spec": {"failurePolicy": "Fail", "validations": [{"expression": "false"}],
		"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]}}}`)
	s.must(http.MethodPost, path+"validatingadmissionpolicybindings", `{"metadata": {"name": "none"}, "spec": {"policyName": "none", "validationActions": ["Deny"]}}`)
	await(t, func() (int, string) {
		return s.request("admin", http.MethodPost, "/api/v1/namespaces/default/configmaps", `{"metadata": {"generateName": "a-"}}`, nil)
	}, http.StatusUnprocessableEntity)
}

func TestRightsOnRolesAreNoWayToMoreRights(t *testing.T) {
	s := newStage(t, known+`{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["get", "create", "update", "patch", "delete"]}`)
	all := `"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]`
	subject := `"subjects": [{"kind": "User", "name": "mallory"}]`
	for _, test := range []struct{ rule, method, path, body string }{
		{"a role", http.MethodPost, "/namespaces/default/roles", `{"metadata": {"name": "r"}, ` + all + `}`},
		{"a cluster role that is aggregated", http.MethodPost, "/clusterroles", `{"metadata": {"name": "r", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}, ` + all + `}`},
		{"a cluster role that aggregates", http.MethodPost, "/clusterroles", `{"metadata": {"name": "r"}, "aggregationRule": {"clusterRoleSelectors": [{}]}}`},
		{"the aggregation of a role that exists", http.MethodPatch, "/clusterroles/cluster-admin", `{"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}}`},
		{"the rules of the own role", http.MethodPatch, "/clusterroles/mallory", `{` + all + `}`},
		{"an aggregation rule of the own role", http.MethodPatch, "/clusterroles/mallory", `{"aggregationRule": {"clusterRoleSelectors": [{}]}}`},
		{"the rules of a role that others are bound to", http.MethodPatch, "/clusterroles/system:basic-user", `{` + all + `}`},
		{"a binding", http.MethodPost, "/namespaces/kube-system/rolebindings", `{"metadata": {"name": "b"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}, ` + subject + `}`},
		{"a subject of a binding", http.MethodPatch, "/clusterrolebindings/cluster-admin", `{` + subject + `}`},
		{"another role of the own binding", http.MethodPatch, "/clusterrolebindings/mallory", `{"roleRef": {"name": "cluster-admin"}}`},
		{"a URL", http.MethodPost, "/clusterroles", `{"metadata": {"name": "r"}, "rules": [{"nonResourceURLs": ["*"], "verbs": ["get"]}]}`},
		{"the verb escalate", http.MethodPost, "/clusterroles", `{"metadata": {"name": "r"}, "rules": [{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["escalate"]}]}`},
		{"the verb bind", http.MethodPost, "/clusterroles", `{"metadata": {"name": "r"}, "rules": [{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["bind"]}]}`},
	} {
		code, body := s.request("mallory", test.method, rbacPath+test.path, test.body, nil)
		if code != http.StatusForbidden && code != http.StatusUnprocessableEntity { // a roleRef cannot be changed
			t.Errorf("%s: %d %s", test.rule, code, body)
		}
	}
	code, body := s.request("mallory", http.MethodPut, rbacPath+"/clusterroles/mallory?dryRun=All", `{"metadata": {"name": "mallory"}, `+all+`}`, nil)
	if code != http.StatusForbidden {
		t.Errorf("a dry run: %d %s", code, body)
	}
}

// certificateRequest returns a CertificateSigningRequest of a client certificate.
func certificateRequest(t *testing.T, name, signer string, subject pkix.Name) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		t.Fatal(err)
	}
	request := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	return fmt.Sprintf(`{"metadata": {"name": %q}, "spec": {"request": %q, "signerName": %q, "usages": ["client auth"],
		"username": "admin", "groups": ["system:masters"]}, "status": {"certificate": "eHg=", "conditions": [{"type": "Approved", "status": "True"}]}}`, name, request, signer)
}

func TestARequestForACertificateIsNoWayToAnotherUser(t *testing.T) {
	s := newStage(t, known+`{"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests", "certificatesigningrequests/approval",
		"certificatesigningrequests/status"], "verbs": ["*"]}`)
	const path, client = "/apis/certificates.k8s.io/v1/certificatesigningrequests", "kubernetes.io/kube-apiserver-client"
	masters := pkix.Name{CommonName: "mallory", Organization: []string{"system:masters"}}
	if code, body := s.request("mallory", http.MethodPost, path, certificateRequest(t, "masters", client, masters), nil); code != http.StatusForbidden {
		t.Errorf("a subject in system:masters: %d %s", code, body)
	}
	code, body := s.request("mallory", http.MethodPost, path, certificateRequest(t, "own", client, pkix.Name{CommonName: "mallory"}), nil)
	if code != http.StatusCreated || !strings.Contains(body, `"username":"mallory"`) || strings.Contains(body, "system:masters") || strings.Contains(body, "Approved") {
		t.Errorf("the requester is the user, and nothing is approved: %d %s", code, body)
	}
	var stored map[string]any
	if err := json.Unmarshal([]byte(s.must(http.MethodGet, path+"/own", "")), &stored); err != nil {
		t.Fatal(err)
	}
	change := func(status string) string {
		changed := map[string]any{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": stored["metadata"], "spec": stored["spec"]}
		if err := json.Unmarshal([]byte(status), new(any)); err != nil {
			t.Fatal(err)
		}
		changed["status"] = json.RawMessage(status)
		text, err := json.Marshal(changed)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	approved := `{"conditions": [{"type": "Approved", "status": "True", "reason": "r", "message": "m"}]}`
	for _, test := range []struct{ rule, path, body string }{
		{"an approval without the verb approve on the signer", "/own/approval", change(approved)},
		{"a status without the verb sign on the signer", "/own/status", change(`{"conditions": [{"type": "Failed", "status": "True", "reason": "r", "message": "m"}]}`)},
	} {
		if code, body := s.request("mallory", http.MethodPut, path+test.path, test.body, nil); code != http.StatusForbidden {
			t.Errorf("%s: %d %s", test.rule, code, body)
		}
	}
}

// pod returns a pod on a node.
func pod(name, node, account string) string {
	return fmt.Sprintf(`{"metadata": {"name": %q}, "spec": {"nodeName": %q, "serviceAccountName": %q, "containers": [{"name": "c", "image": "i"}]}}`, name, node, account)
}

func TestEphemeralContainersAreNoWayToMoreRights(t *testing.T) {
	s := newStage(t, known+`{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "update", "patch"]}`)
	const pods = "/api/v1/namespaces/default/pods"
	s.must(http.MethodPatch, "/api/v1/namespaces/default", `{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}`)
	await(t, func() (int, string) { // until the label is known to admission
		return s.request("admin", http.MethodPost, pods+"?dryRun=All", `{"metadata": {"name": "q"}, "spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "i"}]}}`, nil)
	}, http.StatusForbidden)
	s.must(http.MethodPost, pods, pod("p", "n1", ""))
	container := func(more string) string {
		return `{"spec": {"ephemeralContainers": [{"name": "e", "image": "i", "terminationMessagePolicy": "File", "imagePullPolicy": "Always"` + more + `}]}}`
	}
	for _, test := range []struct {
		rule, token, path, body string
		want                    int
	}{
		{"the right to change pods is not one to add them", "mallory", "/p/ephemeralcontainers", container(""), http.StatusForbidden},
		{"nor are they added by a change of the pod", "mallory", "/p", container(""), http.StatusUnprocessableEntity},
		{"a node adds none to its pod", "n1", "/p/ephemeralcontainers", container(""), http.StatusForbidden},
		{"one with more capabilities in a namespace of baseline", "admin", "/p/ephemeralcontainers", container(`, "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}`), http.StatusForbidden},
		{"a harmless one", "admin", "/p/ephemeralcontainers", container(""), http.StatusOK},
	} {
		code, body := s.request(test.token, http.MethodPatch, pods+test.path, test.body, nil)
		if code != test.want {
			t.Errorf("%s: %d %s, want %d", test.rule, code, body, test.want)
		}
	}
}

func TestANodeGetsTokensOfItsOwnPodsOnly(t *testing.T) {
	s := newStage(t, "")
	const core = "/api/v1/namespaces/default"
	uid := map[string]string{}
	for name, node := range map[string]string{"mine": "n1", "theirs": "n2"} {
		s.must(http.MethodPost, core+"/serviceaccounts", `{"metadata": {"name": "`+name+`"}}`)
		var created struct{ Metadata struct{ UID string } }
		if err := json.Unmarshal([]byte(s.must(http.MethodPost, core+"/pods", pod(name, node, name))), &created); err != nil {
			t.Fatal(err)
		}
		uid[name] = created.Metadata.UID
	}
	token := func(account, boundTo string) func() (int, string) {
		return func() (int, string) {
			return s.request("n1", http.MethodPost, core+"/serviceaccounts/"+account+"/token", `{"spec": {`+boundTo+`}}`, nil)
		}
	}
	ref := func(kind, name, uid string) string {
		return fmt.Sprintf(`"boundObjectRef": {"apiVersion": "v1", "kind": %q, "name": %q, "uid": %q}`, kind, name, uid)
	}
	await(t, token("mine", ref("Pod", "mine", uid["mine"])), http.StatusCreated)
	for rule, request := range map[string]func() (int, string){
		"of the account of another node's pod":  token("theirs", ref("Pod", "theirs", uid["theirs"])),
		"of its account for another node's pod": token("mine", ref("Pod", "theirs", uid["theirs"])),
		"that is not bound":                     token("mine", ""),
		"that is bound to a secret":             token("mine", ref("Secret", "mine", "")),
		"that is bound to the node":             token("mine", ref("Node", "n1", "")),
		"of a pod of another UID":               token("mine", ref("Pod", "mine", "0")),
		"of a pod without a UID":                token("mine", ref("Pod", "mine", "")),
		"of a pod that does not exist":          token("mine", ref("Pod", "none", uid["mine"])),
	} {
		if code, body := request(); code < http.StatusBadRequest || code >= http.StatusInternalServerError {
			t.Errorf("a token %s: %d %s", rule, code, body)
		}
	}
}

func TestAPathIsAuthorizedAsItIsServed(t *testing.T) {
	s := newStage(t, known+`{"apiGroups": [""], "resources": ["pods", "pods/log", "nodes/proxy"], "verbs": ["get", "create"]},
		{"nonResourceURLs": ["/public/*"], "verbs": ["*"]}`)
	s.must(http.MethodPost, "/api/v1/namespaces/default/pods", pod("p", "n1", ""))
	s.must(http.MethodPost, "/api/v1/namespaces/default/secrets", `{"metadata": {"name": "s"}, "stringData": {"key": "hunter2"}}`)
	const p = "/api/v1/namespaces/default/pods/p"
	for _, path := range []string{
		p + "/exec?command=id", p + "/log/../exec?command=id", p + "/log/%2e%2e/exec?command=id", p + "%2Fexec?command=id", p + "//exec?command=id",
		p + "/./exec?command=id", p + "/exec/?command=id", p + "/EXEC?command=id", p + "/attach", p + "/portforward", p + "/proxy/", p + "/proxy/../log",
		p + "/..%2f..%2fsecrets/s", p + "/../../secrets/s", "//api/v1/namespaces/default/secrets/s", "/api//v1/namespaces/default/secrets/s",
		"/api/v1/namespaces/default/pods/..%2Fsecrets%2Fs", "/public/../api/v1/namespaces/default/secrets/s", "/public/%2e%2e/api/v1/namespaces/default/secrets/s",
		"/public/..%2fapi/v1/namespaces/default/secrets/s", "/api/v1/watch/namespaces/default/secrets", "/api/v1/proxy/namespaces/default/pods/p",
		"/api/v1/namespaces/default/services/x/proxy/../../../secrets/s", "/apis/../api/v1/namespaces/default/secrets/s", "/api/v1/namespaces/default%2Fsecrets/s",
		"/api/v1/secrets;x=/pods", "/API/v1/secrets", "/api/v1/nodes/n1/proxy/../../../namespaces/default/secrets/s",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			code, body := s.request("mallory", method, path, "", nil)
			if code < http.StatusMultipleChoices || strings.Contains(body, "hunter2") || strings.Contains(body, "aHVudGVyMg==") {
				t.Errorf("%s %s: %d %s", method, path, code, body)
			}
		}
	}
	if code, body := s.request("mallory", http.MethodGet, p, "", nil); code != http.StatusOK {
		t.Errorf("the pod itself: %d %s", code, body)
	}
}
