package faults

import (
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"svc.dev/svc/test/launch"
)

// badRequests are what clients do wrong, with the status of the answer.
var badRequests = []struct {
	launch.Request
	status int
}{
	{launch.Request{Method: "GET", Path: "/api/v1/bogus"}, http.StatusNotFound},
	{launch.Request{Method: "GET", Path: "/api/v1/namespaces/default/configmaps/missing"}, http.StatusNotFound},
	{launch.Request{Method: "PATCH", Path: "/api/v1/namespaces/default/configmaps"}, http.StatusMethodNotAllowed},
	{launch.Request{Method: "GET", Path: "/api/v1/pods?resourceVersion=x"}, http.StatusBadRequest},
	{launch.Request{Method: "GET", Path: "/api/v1/pods?continue=x"}, http.StatusBadRequest},
	{launch.Request{Method: "GET", Path: "/api/v1/pods?labelSelector=%21%21"}, http.StatusBadRequest},
	{launch.Request{Method: "GET", Path: "/api/v1/pods?timeout=x"}, http.StatusBadRequest},
	{launch.Request{Method: "GET", Path: "/api/v1/pods", Accept: "text/html"}, http.StatusNotAcceptable},
	{launch.Request{Method: "GET", Path: "/api/v1/pods", Anonymous: true, Token: "wrong"}, http.StatusUnauthorized},
	{launch.Request{Method: "GET", Path: "/api/v1/secrets", Header: map[string]string{"Impersonate-User": "stranger"}}, http.StatusForbidden},
	{launch.Request{Method: "POST", Path: "/api/v1/namespaces/default/configmaps", ContentType: "application/json", Body: `{`}, http.StatusBadRequest},
	{launch.Request{Method: "POST", Path: "/api/v1/namespaces/default/configmaps", ContentType: "text/plain", Body: `{}`}, http.StatusUnsupportedMediaType},
	{launch.Request{Method: "POST", Path: "/api/v1/namespaces/default/configmaps", ContentType: "application/json", Body: `{"metadata":{"name":"A"}}`}, http.StatusUnprocessableEntity},
	{launch.Request{Method: "POST", Path: "/api/v1/namespaces/missing/configmaps", ContentType: "application/json", Body: `{"metadata":{"name":"a"}}`}, http.StatusNotFound},
	{launch.Request{Method: "POST", Path: "/api/v1/namespaces/default/configmaps", ContentType: "application/json", Body: `"` + strings.Repeat("a", 4<<20) + `"`}, http.StatusRequestEntityTooLarge},
	{launch.Request{Method: "POST", Path: definitionsPath, ContentType: "application/json", Body: `{"metadata":{"name":"a"},"spec":{"scope":"Bogus"}}`}, http.StatusUnprocessableEntity},
	{launch.Request{Method: "PATCH", Path: "/api/v1/namespaces/default", ContentType: "application/json-patch+json", Body: `[{"op":"remove","path":"/bogus"}]`}, http.StatusUnprocessableEntity},
	{launch.Request{Method: "PATCH", Path: "/api/v1/namespaces/default", ContentType: "application/strategic-merge-patch+json", Body: `{"metadata":{"$patch":"bogus"}}`}, http.StatusBadRequest},
	{launch.Request{Method: "PATCH", Path: "/api/v1/namespaces/default?fieldManager=m", ContentType: "application/apply-patch+yaml", Body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"labels":7}}`}, http.StatusBadRequest},
	{launch.Request{
		Method: "PATCH", Path: "/api/v1/namespaces/default/services/a?fieldManager=m", ContentType: "application/apply-patch+yaml",
		Body: `{"apiVersion":"v1","kind":"Service","spec":{"ports":[{"port":"http"}]}}`,
	}, http.StatusBadRequest},
}

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// logged are the messages that the libraries log for the bad requests: for the token that is
// wrong, and for the time that is no duration.
var logged = []string{
	`E "Unable to authenticate the request"`,
	`E Error - invalid timeout specified in the request URL - time: invalid duration "x": "/api/v1/pods?timeout=x"`,
}

// TestServersLogTheSameForWhatClientsDoWrong compares what `svc apiserver` and `svc up` log
// for the same requests: a line for each of these two, and nothing for the others.
func TestServersLogTheSameForWhatClientsDoWrong(t *testing.T) {
	alone := newReplica(t, newEtcd(t).URL(), "--authorization-mode=RBAC")
	whole := up(t, filepath.Join(tempDir(t), "data"), "--authorization-mode=RBAC")
	g := NewWithT(t)
	g.Expect(logOfBadRequests(t, alone.Process, alone.config)).To(Equal(logged), "svc apiserver")
	g.Expect(logOfBadRequests(t, whole.Process, whole.Config)).To(Equal(logged), "svc up")
}

// message is the level and the message of a log line, without the values that follow it.
var message = regexp.MustCompile(`(?m)^([IWEF])\d{4} [^\]]*\] ("(?:[^"\\]|\\.)*"|.*$)`)

// logOfBadRequests sends the bad requests to a server, and kills it so that its log is complete.
// It returns the messages that the server has logged since, in their order by name.
func logOfBadRequests(t *testing.T, process *launch.Process, config *rest.Config) []string {
	t.Helper()
	g := NewWithT(t)
	before := len(process.Output())
	for _, bad := range badRequests {
		resp, err := launch.Send(t.Context(), config, bad.Request)
		g.Expect(err).NotTo(HaveOccurred(), bad.Path)
		g.Expect(resp.Status).To(Equal(bad.status), "%s %s: %s", bad.Method, bad.Path, resp.Body)
	}
	process.Kill()
	var messages []string
	for _, line := range message.FindAllStringSubmatch(process.Output()[before:], -1) {
		messages = append(messages, line[1]+" "+line[2])
	}
	slices.Sort(messages)
	return messages
}
