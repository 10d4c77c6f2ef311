package podsecurity

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apiserver/admission/admissiontest"
	"svc.dev/svc/apiserver/release"
)

func register(plugins *admission.Plugins) {
	Register(plugins, func() release.Release { return release.Default })
}

// labelled returns the namespace ns with labels of pod security: "enforce=baseline".
func labelled(labels ...string) *corev1.Namespace {
	return admissiontest.Namespace("ns", func(ns *corev1.Namespace) {
		ns.Labels = map[string]string{}
		for _, label := range labels {
			name, value, _ := strings.Cut(label, "=")
			ns.Labels["pod-security.kubernetes.io/"+name] = value
		}
	})
}

func hostNetwork(p *corev1.Pod) { p.Spec.HostNetwork = true }

// restricted makes a pod that the strictest standard allows.
func restricted(p *corev1.Pod) {
	p.Spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

type warnings []string

func (w *warnings) AddWarning(_, text string) { *w = append(*w, text) }

func TestNamespacesDecideWhichPodsAreAllowed(t *testing.T) {
	const violates = `pods "pod" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`
	const warns = `would violate PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`
	const config = `
apiVersion: pod-security.admission.config.k8s.io/v1
kind: PodSecurityConfiguration
defaults: {enforce: baseline}
exemptions: {usernames: [robot], runtimeClasses: [safe]}
`
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}
	deployment.Spec.Template.Spec = admissiontest.Pod(hostNetwork).Spec
	for _, test := range []struct {
		rule      string
		namespace *corev1.Namespace
		config    string
		object    runtime.Object
		user      string
		err       string
		warning   string
		audit     string
	}{
		{rule: "without labels all pods are allowed", namespace: labelled(), object: admissiontest.Pod(hostNetwork)},
		{rule: "an enforced level refuses", namespace: labelled("enforce=baseline"), object: admissiontest.Pod(hostNetwork), err: violates},
		{rule: "and allows", namespace: labelled("enforce=restricted"), object: admissiontest.Pod(restricted)},
		{rule: "a level may only warn", namespace: labelled("warn=baseline"), object: admissiontest.Pod(hostNetwork), warning: warns},
		{rule: "or only be noted in the audit log", namespace: labelled("audit=baseline"), object: admissiontest.Pod(hostNetwork), audit: warns},
		{rule: "templates are not refused, but warned of", namespace: labelled("enforce=baseline"), object: deployment, warning: warns},
		{rule: "also by the warn level", namespace: labelled("warn=baseline"), object: deployment, warning: warns},
		{rule: "a file sets the default level", namespace: labelled(), config: config, object: admissiontest.Pod(hostNetwork), err: violates},
		{rule: "which labels replace", namespace: labelled("enforce=privileged"), config: config, object: admissiontest.Pod(hostNetwork)},
		{rule: "a user may be exempt", namespace: labelled(), config: config, object: admissiontest.Pod(hostNetwork), user: "robot"},
		{rule: "a runtime class, too", namespace: labelled(), config: config,
			object: admissiontest.Pod(hostNetwork, func(p *corev1.Pod) { p.Spec.RuntimeClassName = ptr.To("safe") })},
		{rule: "the standards are those of the release", namespace: labelled("enforce=baseline", "enforce-version=v1.40"),
			// The sysctl is allowed since 1.29.
			object: admissiontest.Pod(func(p *corev1.Pod) {
				p.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "net.ipv4.tcp_keepalive_time", Value: "1"}}}
			}), err: `pods "pod" is forbidden: violates PodSecurity "baseline:v1.40": forbidden sysctls (net.ipv4.tcp_keepalive_time)`},
	} {
		t.Run(test.rule, func(t *testing.T) {
			s := admissiontest.Server{Objects: []runtime.Object{test.namespace}}
			if test.config != "" {
				s.Config = strings.NewReader(test.config)
			}
			p := s.Start(t, register)
			var warned warnings
			ctx := audit.WithAuditContext(warning.WithWarningRecorder(t.Context(), &warned))
			if err := audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: auditapi.LevelMetadata}, nil); err != nil {
				t.Fatal(err)
			}
			r := admissiontest.Request{Object: test.object}
			if test.user != "" {
				r.User = &user.DefaultInfo{Name: test.user}
			}
			err := p.Handle(ctx, r.Attributes(t))
			if test.err == "" && err != nil || test.err != "" && (!apierrors.IsForbidden(err) || err.Error() != test.err) {
				t.Errorf("got %v, want %s", err, test.err)
			}
			if got := strings.Join(warned, "\n"); got != test.warning {
				t.Errorf("warned %q, want %q", got, test.warning)
			}
			if got := audit.AuditContextFrom(ctx).GetEventAnnotations()["pod-security.kubernetes.io/audit-violations"]; got != test.audit {
				t.Errorf("audit %q, want %q", got, test.audit)
			}
		})
	}
}

func TestAStricterNamespaceWarnsOfItsPods(t *testing.T) {
	p := admissiontest.Server{Objects: []runtime.Object{labelled(), admissiontest.Pod(hostNetwork)}}.Start(t, register)
	var warned warnings
	ctx := warning.WithWarningRecorder(t.Context(), &warned)
	if err := p.Handle(ctx, (admissiontest.Request{Object: labelled("enforce=baseline"), Old: labelled()}).Attributes(t)); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(warned, "\n"); !strings.Contains(got, "pod: host namespaces") {
		t.Errorf("warned %q", got)
	}
}

func TestInvalidLabelsAreRefused(t *testing.T) {
	p := admissiontest.Server{}.Start(t, register)
	err := p.Send(t, admissiontest.Request{Object: labelled("enforce=strict")})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "strict": must be one of privileged, baseline, restricted`) {
		t.Errorf("got %v", err)
	}
}

func TestAnInvalidConfigurationIsNamed(t *testing.T) {
	for _, config := range []string{
		"apiVersion: v1\nkind: Other\n",
		"apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\ndefaults: {enforce: strict}\n",
	} {
		if _, err := (admissiontest.Server{Config: strings.NewReader(config)}).TryStart(t, register); err == nil || !strings.Contains(err.Error(), "PodSecurity") {
			t.Errorf("%s: %v", config, err)
		}
	}
}
