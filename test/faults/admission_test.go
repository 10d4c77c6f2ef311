package faults

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

func TestAnInvalidAdmissionConfigurationIsNamed(t *testing.T) {
	const header = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	for _, test := range []struct{ rule, content, want string }{
		{"a file that is not YAML", "x: [", "yaml"},
		{"another kind", "apiVersion: v1\nkind: Pod\n", "Pod"},
		{"a level that does not exist", header + `- name: PodSecurity
  configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {enforce: strict}}
`, "must be one of privileged, baseline, restricted"},
		{"an unknown field of a plugin", header + `- name: EventRateLimit
  configuration: {apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limit: []}
`, `unknown field "limit"`},
	} {
		t.Run(test.rule, func(t *testing.T) {
			g := NewWithT(t)
			file := filepath.Join(tempDir(t), "admission.yaml")
			g.Expect(os.WriteFile(file, []byte(test.content), 0o600)).To(Succeed())
			port, err := launch.FreePort()
			g.Expect(err).NotTo(HaveOccurred())
			code, output := run(t, "up", "--data-dir="+filepath.Join(tempDir(t), "data"), "--secure-port="+port, "--node=false",
				"--enable-admission-plugins=EventRateLimit", "--admission-control-config-file="+file)
			g.Expect(code).To(Equal(1), output)
			lines := strings.Split(strings.TrimSpace(output), "\n")
			g.Expect(lines[len(lines)-1]).To(And(HavePrefix("svc up: "), ContainSubstring(test.want), ContainSubstring("--admission-control-config-file"), ContainSubstring(file)))
		})
	}
}
