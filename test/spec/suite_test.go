// Package spec holds a test for each rule of documents 1 and 2: a file for each
// of their sections, a container named after the section, and a spec whose name
// is the rule. All specs share one `svc up` without controllers.
package spec

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes"

	"svc.dev/svc/test/launch"
)

// The suite's server, and a client for what is not a spec's subject.
var (
	server *launch.Server
	client kubernetes.Interface
)

func TestSpec(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(launch.Patience)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "documents 1 and 2")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	dir, err := launch.TempDir()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, dir)
	server = up(ctx, filepath.Join(dir, "data"), "--authorization-mode=RBAC")
	client, err = kubernetes.NewForConfig(server.Config)
	Expect(err).NotTo(HaveOccurred())
})

// up starts a server without controllers that stops after the container.
func up(ctx context.Context, dataDir string, flags ...string) *launch.Server {
	GinkgoHelper()
	s, err := launch.Up(ctx, dataDir, launch.WithoutControllers(flags...)...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		code, err := s.Stop(launch.Patience)
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(BeZero(), "exit code after SIGTERM\n%s", s.Output())
	})
	return s
}

// serverLogged is the part of the server's log that earlier reports have shown,
// in bytes.
var serverLogged int

var _ = ReportAfterEach(func(report SpecReport) {
	if server == nil {
		return
	}
	log := server.Output()
	if report.Failed() {
		AddReportEntry("server log during this spec", log[serverLogged:])
	}
	serverLogged = len(log)
})

// object is a JSON object.
type object = map[string]any

// namespace creates a namespace for a spec. Its objects remain: nothing finalizes
// namespaces without controllers.
func namespace(ctx context.Context) string {
	GinkgoHelper()
	made, err := client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-"}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return made.Name
}

// send sends a request to the suite's server as an administrator.
func send(ctx context.Context, r launch.Request) launch.Response {
	GinkgoHelper()
	resp, err := launch.Send(ctx, server.Config, r)
	Expect(err).NotTo(HaveOccurred(), "%s %s", r.Method, r.Path)
	return resp
}

// watched returns the events of a watch of a server, whose path has a query. The server
// ends the watch after a second or, if whole does not hold then, after twice as long: a busy
// server sends later what is to be sent.
func watched(ctx context.Context, s *launch.Server, path string, whole func(seen []object) bool) []object {
	GinkgoHelper()
	for seconds := 1; ; seconds *= 2 {
		resp, err := launch.Send(ctx, s.Config, launch.Request{Method: "GET", Path: fmt.Sprintf("%s&watch=1&timeoutSeconds=%d", path, seconds)})
		Expect(err).NotTo(HaveOccurred(), path)
		if seen := events(resp); whole(seen) || seconds > int(launch.Patience/time.Second) {
			return seen
		}
	}
}

// atLeast returns a condition of watched: n events.
func atLeast(n int) func([]object) bool {
	return func(seen []object) bool { return len(seen) >= n }
}

// get reads a path of the suite's server as JSON and expects status 200.
func get(ctx context.Context, path string) object {
	GinkgoHelper()
	return parse(send(ctx, launch.Request{Method: "GET", Path: path}), 200)
}

// parse reads the body of a response as JSON, and expects a status.
func parse(resp launch.Response, status int) object {
	GinkgoHelper()
	Expect(resp.Status).To(Equal(status), resp.Body)
	obj, err := resp.Object()
	Expect(err).NotTo(HaveOccurred(), resp.Body)
	return obj
}

// failed reads the body of a response as a Status, and expects a status code.
func failed(resp launch.Response, code int) metav1.Status {
	GinkgoHelper()
	Expect(resp.Status).To(Equal(code), resp.Body)
	var status metav1.Status
	Expect(json.Unmarshal([]byte(resp.Body), &status)).To(Succeed(), resp.Body)
	Expect(status.Kind).To(Equal("Status"), resp.Body)
	Expect(status.Code).To(BeEquivalentTo(code), resp.Body)
	return status
}
