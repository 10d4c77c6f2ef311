// Package e2e drives a running `svc up` as its users do: with kubectl, and,
// where kubectl would not let bad input through, with HTTP.
package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"

	"svc.dev/svc/test/launch"
)

// releaseVariable names the release that the suite's server serves, such as 1.22. If it is
// set, only the specs that hold at every release run, and of those that hold since some
// release, those which the release is not older than.
const releaseVariable = "SVC_RELEASE"

// release returns the release that the suite's server serves: by default that of svc.
func release() string { return cmp.Or(os.Getenv(releaseVariable), "1.28") }

// everyRelease labels what holds at every release of Kubernetes that svc serves, or since the
// release of an inner node.
var everyRelease = Label("every release")

// since decorates what the first releases do not have.
func since(first string) SemVerConstraints { return SemVerConstraint(">= " + first + ".0") }

// only decorates what names one release.
func only(at string) SemVerConstraints { return SemVerConstraint("= " + at + ".0") }

// aliceToken authenticates the user alice, who is in no group that may do anything.
const aliceToken = "alice-static-token"

// The suite's server, and a client for what kubectl is not the subject of.
var (
	server *launch.Server
	client kubernetes.Interface
)

func TestE2E(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(launch.Patience)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	suite, reporter := GinkgoConfiguration()
	if os.Getenv(releaseVariable) != "" {
		suite.LabelFilter, suite.SemVerFilter = everyRelease[0], release()+".0"
	}
	RunSpecs(t, "svc", suite, reporter)
}

var _ = BeforeSuite(func(ctx SpecContext) {
	dir, err := launch.TempDir()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, dir)

	tokens := filepath.Join(dir, "tokens.csv")
	Expect(os.WriteFile(tokens, fmt.Appendf(nil, "%s,alice,alice-uid\n", aliceToken), 0o600)).To(Succeed())

	flags := launch.WithoutControllers("--token-auth-file="+tokens, "--svclet-timeout=5s")
	flags = append(flags, "--release="+release())
	server, err = launch.Up(ctx, filepath.Join(dir, "data"), flags...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		code, err := server.Stop(launch.Patience)
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(BeZero(), "exit code after SIGTERM\n%s", server.Output())
	})
	client, err = kubernetes.NewForConfig(server.Config)
	Expect(err).NotTo(HaveOccurred())
})

// serverLogged is how much of the server's log earlier reports have shown.
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

// object is what kubectl prints with -o json.
type object = map[string]any

// parse reads JSON.
func parse(text string) object {
	GinkgoHelper()
	var obj object
	Expect(json.Unmarshal([]byte(text), &obj)).To(Succeed(), text)
	return obj
}
