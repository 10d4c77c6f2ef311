package e2e

import (
	"context"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/test/launch"
)

// commandTimeout bounds a kubectl command that is to end by itself.
const commandTimeout = launch.Patience

// sandbox is kubectl in a namespace of the spec's own.
type sandbox struct {
	launch.Kubectl
	// cleanup is set when failures do not matter any more.
	cleanup bool
}

// newSandbox creates a namespace that is deleted when the spec ends.
func newSandbox(ctx context.Context) *sandbox {
	GinkgoHelper()
	ns, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{})).To(Succeed())
	})
	return &sandbox{Kubectl: launch.Kubectl{Kubeconfig: server.Kubeconfig, Home: server.DataDir + "-home", Namespace: ns.Name}}
}

// run runs a command that must succeed, and returns what it printed.
func (s *sandbox) run(args ...string) string {
	GinkgoHelper()
	return s.pipe("", args...)
}

// pipe is run with standard input.
func (s *sandbox) pipe(stdin string, args ...string) string {
	GinkgoHelper()
	out, _ := s.both(stdin, args...)
	return out
}

// both is pipe that also returns what the command printed on standard error.
func (s *sandbox) both(stdin string, args ...string) (stdout, stderr string) {
	GinkgoHelper()
	stdout, stderr, err := s.try(stdin, args...)
	if !s.cleanup {
		Expect(err).NotTo(HaveOccurred(), "kubectl %s\n%s%s", strings.Join(args, " "), stdout, stderr)
	}
	return stdout, stderr
}

// fails runs a command that must fail with exit code 1, and returns what it
// printed on standard error.
func (s *sandbox) fails(stdin string, args ...string) string {
	GinkgoHelper()
	stdout, stderr, err := s.try(stdin, args...)
	var exit *exec.ExitError
	Expect(err).To(BeAssignableToTypeOf(exit), "kubectl %s\n%s%s", strings.Join(args, " "), stdout, stderr)
	return stderr
}

func (s *sandbox) try(stdin string, args ...string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	return s.Run(ctx, stdin, args...)
}

// start starts a command that runs until the spec ends.
func (s *sandbox) start(args ...string) *gexec.Session {
	GinkgoHelper()
	cmd, err := s.Command(context.Background(), args...)
	Expect(err).NotTo(HaveOccurred())
	session, err := gexec.Start(cmd, GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { session.Kill().Wait() })
	return session
}

// get reads an object; args are those of kubectl get.
func (s *sandbox) get(args ...string) object {
	GinkgoHelper()
	return parse(s.run(append([]string{"get", "-o", "json"}, args...)...))
}

// field reads one value; args are those of kubectl get.
func (s *sandbox) field(jsonPath string, args ...string) string {
	GinkgoHelper()
	return s.run(append([]string{"get", "-o", "jsonpath=" + jsonPath}, args...)...)
}

// resources returns the rows of kubectl api-resources, with one space between the columns.
// Soon after a change of definitions and APIServices it may lack some, or be an error.
func (s *sandbox) resources(g Gomega) []string {
	GinkgoHelper()
	return rows(s.out("", "api-resources", "--no-headers")(g))
}

// unless is the error output of a command that is to fail soon; it is empty while the
// command succeeds.
func (s *sandbox) unless(args ...string) func() string {
	return func() string {
		_, errOut, err := s.try("", args...)
		if err == nil {
			return ""
		}
		return errOut
	}
}

// out is the output of a command that is to succeed soon.
func (s *sandbox) out(stdin string, args ...string) func(Gomega) string {
	return func(g Gomega) string {
		out, errOut, err := s.try(stdin, args...)
		g.Expect(err).NotTo(HaveOccurred(), "%s%s", out, errOut)
		return out
	}
}

// with is the same sandbox with more environment variables.
func (s *sandbox) with(env ...string) *sandbox {
	changed := *s
	changed.Env = append(s.Env[:len(s.Env):len(s.Env)], env...)
	return &changed
}

// afterwards runs a command when the spec ends, whatever became of what it
// cleans up.
func (s *sandbox) afterwards(args ...string) {
	quiet := *s
	quiet.cleanup = true
	DeferCleanup(func() { quiet.run(args...) })
}

// lines splits a table into its lines, without the last newline.
func lines(text string) []string {
	return strings.Split(strings.TrimRight(text, "\n"), "\n")
}

// firstColumn is the first word of every line.
func firstColumn(text string) []string {
	var words []string
	for _, line := range lines(text) {
		if fields := strings.Fields(line); len(fields) > 0 {
			words = append(words, fields[0])
		}
	}
	return words
}

// header is a table's first line, with one space between columns.
func header(text string) string {
	return strings.Join(strings.Fields(lines(text)[0]), " ")
}

// words splits a command line at its spaces; an underscore stands for a space
// within a word.
func words(commandLine string) []string {
	fields := strings.Fields(commandLine)
	for i := range fields {
		fields[i] = strings.ReplaceAll(fields[i], "_", " ")
	}
	return fields
}
