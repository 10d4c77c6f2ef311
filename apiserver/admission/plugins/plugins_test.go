package plugins

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/component-base/featuregate"

	"svc.dev/svc/apiserver/admission/admissiontest"
	"svc.dev/svc/apiserver/admission/noderestriction"
	"svc.dev/svc/apiserver/admission/tolerationseconds"
	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/internal/featuregates"
	"svc.dev/svc/internal/releases"
)

func TestEveryPluginIsRegisteredUnderItsName(t *testing.T) {
	library := options.NewAdmissionOptions()
	var names []string
	for _, p := range All(Settings{}) {
		names = append(names, p.Name)
		if p.register == nil {
			if !slices.Contains(library.RecommendedPluginOrder, p.Name) {
				t.Errorf("%s is registered nowhere", p.Name)
			}
			continue
		}
		before := library.Plugins.Registered()
		p.Register(library.Plugins)
		if after := library.Plugins.Registered(); len(after) != len(before)+1 || !slices.Contains(after, p.Name) {
			t.Errorf("%s registers another name", p.Name)
		}
	}
	for _, name := range library.Plugins.Registered() {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not in the list", name)
		}
	}
}

func TestEveryPluginIsDocumented(t *testing.T) {
	for _, p := range All(Settings{}) {
		if !strings.HasSuffix(p.Does, ".") || strings.ToLower(p.Does[:1]) != p.Does[:1] {
			t.Errorf("%s: %q is not a sentence that begins with a verb", p.Name, p.Does)
		}
	}
}

// TestOrderAndDefaultsAreThoseOfKubernetes compares with kube-apiserver 1.28, which
// has NodeRestriction off; kubeadm and svc have it on. PodGroupProtection, PodTopologyLabels,
// NodeDeclaredFeatureValidator, PodResizeValidator and MutatingAdmissionPolicy came later.
func TestOrderAndDefaultsAreThoseOfKubernetes(t *testing.T) {
	want := strings.Fields(`-AlwaysAdmit -NamespaceAutoProvision NamespaceLifecycle -NamespaceExists -SecurityContextDeny
		-LimitPodHardAntiAffinityTopology LimitRanger ServiceAccount NodeRestriction TaintNodesByCondition -AlwaysPullImages
		-ImagePolicyWebhook PodSecurity -PodNodeSelector Priority DefaultTolerationSeconds -PodTolerationRestriction -EventRateLimit
		-ExtendedResourceToleration -PersistentVolumeLabel DefaultStorageClass StorageObjectInUseProtection PodGroupProtection -OwnerReferencesPermissionEnforcement
		PersistentVolumeClaimResize RuntimeClass CertificateApproval CertificateSigning ClusterTrustBundleAttest CertificateSubjectRestriction
		DefaultIngressClass -DenyServiceExternalIPs PodTopologyLabels NodeDeclaredFeatureValidator PodResizeValidator MutatingAdmissionPolicy MutatingAdmissionWebhook ValidatingAdmissionPolicy
		ValidatingAdmissionWebhook ResourceQuota -AlwaysDeny`)
	var got []string
	for _, p := range All(Settings{}) {
		name := p.Name
		if !p.On {
			name = "-" + name
		}
		got = append(got, name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// BenchmarkPodCreation measures what each plugin that is on by default adds to the
// creation of a pod, in a namespace without limits, quotas and labels.
func BenchmarkPodCreation(b *testing.B) {
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = "ns", "default"
	server := admissiontest.Server{
		Objects: []runtime.Object{admissiontest.Namespace("ns"), account},
		Authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		}),
	}
	settings := settingsAt(release.Default.Minor, "")
	settings.Tolerations = tolerationseconds.NewDefaults()
	for _, p := range All(settings) {
		if p.register == nil || !p.On {
			continue
		}
		b.Run(p.Name, func(b *testing.B) {
			plugin := server.Start(b, p.register)
			pod := admissiontest.Pod()
			b.ReportAllocs()
			for b.Loop() {
				if err := plugin.Send(b, admissiontest.Request{Object: pod.DeepCopy()}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("none", func(b *testing.B) {
		pod := admissiontest.Pod()
		b.ReportAllocs()
		for b.Loop() {
			(admissiontest.Request{Object: pod.DeepCopy()}).Attributes(b)
		}
	})
}

func TestNodesAreRestrictedAsInTheRelease(t *testing.T) {
	const certificates, audiences = gates.AllowInsecureSvcletCertificateSigningRequests, gates.ServiceAccountNodeAudienceRestriction
	for _, test := range []struct {
		minor int
		set   string
		want  noderestriction.Restrictions
	}{
		{30, "", noderestriction.Restrictions{}},
		{31, "", noderestriction.Restrictions{Certificates: true}},
		{31, string(certificates) + "=true", noderestriction.Restrictions{}},
		{32, "", noderestriction.Restrictions{Certificates: true}},
		{32, string(audiences) + "=true", noderestriction.Restrictions{Certificates: true, Audiences: true}},
		{33, "", noderestriction.Restrictions{Certificates: true, Audiences: true}},
		{37, string(audiences) + "=false", noderestriction.Restrictions{Certificates: true}},
	} {
		if got, err := settingsAt(test.minor, test.set).ofNodes(); err != nil || got != test.want {
			t.Errorf("1.%d %s: %+v, %v, want %+v", test.minor, test.set, got, err, test.want)
		}
	}
	failing := Settings{Gates: func() (featuregate.FeatureGate, error) { return nil, errors.New("x") }}
	if _, err := failing.ofNodes(); err == nil {
		t.Error("no error without gates")
	}
	if _, err := failing.labelsTopology(); err == nil {
		t.Error("no error without gates")
	}
}

func TestPodsGetTheTopologyOfNodesAsInTheRelease(t *testing.T) {
	const gate = string(gates.PodTopologyLabelsAdmission)
	for _, test := range []struct {
		minor int
		set   string
		want  bool
	}{
		{28, "", false}, {33, "", false}, {33, gate + "=true", true}, {34, "", false}, {35, "", true}, {36, "", true}, {36, gate + "=false", false},
	} {
		if got, err := settingsAt(test.minor, test.set).labelsTopology(); err != nil || got != test.want {
			t.Errorf("1.%d %s: %t, %v", test.minor, test.set, got, err)
		}
	}
}

// settingsAt returns the settings of a release with gates that are set.
func settingsAt(minor int, set string) Settings {
	return Settings{
		Release: func() release.Release { return release.Release{Major: 1, Minor: minor} },
		Gates: func() (featuregate.FeatureGate, error) {
			gates, err := featuregates.NewAt(releases.Release(minor))
			if err == nil && set != "" {
				err = gates.Set(set)
			}
			return gates, err
		},
	}
}
