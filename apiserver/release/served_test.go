package release

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1beta1 "k8s.io/api/batch/v1beta1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta2 "k8s.io/api/flowcontrol/v1beta2"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagev1alpha1 "k8s.io/api/storage/v1alpha1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource"
)

func TestServes(t *testing.T) {
	for _, tc := range []struct {
		name     string
		release  Release
		config   map[string]string
		resource string
		example  runtime.Object
		want     bool
	}{
		{name: "stable is on", resource: "deployments", example: &appsv1.Deployment{}, want: true},
		{name: "the core version is on", resource: "configmaps", example: &corev1.ConfigMap{}, want: true},
		{name: "autoscaling v2 since 1.23", resource: "horizontalpodautoscalers", example: &autoscalingv2.HorizontalPodAutoscaler{}, want: true},
		{name: "events.k8s.io v1 since 1.19", resource: "events", example: &eventsv1.Event{}, want: true},
		{name: "events.k8s.io v1 not in 1.18", release: Release{1, 18}, resource: "events", example: &eventsv1.Event{}},
		{name: "flow control v1 not yet in 1.28", resource: "flowschemas", example: &flowcontrolv1.FlowSchema{}},
		{name: "flow control v1 since 1.29", release: Release{1, 29}, resource: "flowschemas", example: &flowcontrolv1.FlowSchema{}, want: true},
		{name: "flow control v1beta3 in 1.28", resource: "flowschemas", example: &flowcontrolv1beta3.FlowSchema{}, want: true},
		{name: "flow control v1beta2 in 1.28", resource: "flowschemas", example: &flowcontrolv1beta2.FlowSchema{}, want: true},
		{name: "flow control v1beta2 removed in 1.29", release: Release{1, 29}, resource: "flowschemas", example: &flowcontrolv1beta2.FlowSchema{}},
		{name: "admission policy v1 not yet in 1.28", resource: "validatingadmissionpolicies", example: &admissionregistrationv1.ValidatingAdmissionPolicy{}},
		{name: "admission webhooks v1 in 1.28", resource: "validatingwebhookconfigurations", example: &admissionregistrationv1.ValidatingWebhookConfiguration{}, want: true},
		{name: "service CIDR v1 not yet in 1.28", resource: "servicecidrs", example: &networkingv1.ServiceCIDR{}},
		{name: "IP address v1 not yet in 1.28", resource: "ipaddresses", example: &networkingv1.IPAddress{}},
		{name: "beta is off", resource: "validatingadmissionpolicies", example: &admissionregistrationv1beta1.ValidatingAdmissionPolicy{}},
		{name: "beta from before 1.22 is on", release: Release{1, 24}, resource: "cronjobs", example: &batchv1beta1.CronJob{}, want: true},
		{name: "alpha is off", release: Release{1, 30}, resource: "volumeattributesclasses", example: &storagev1alpha1.VolumeAttributesClass{}},
		{name: "subresources go with their resource", resource: "flowschemas/status", example: &flowcontrolv1.FlowSchema{}},

		{name: "a version can be turned on", config: map[string]string{"admissionregistration.k8s.io/v1beta1": ""}, resource: "validatingadmissionpolicies", example: &admissionregistrationv1beta1.ValidatingAdmissionPolicy{}, want: true},
		{name: "a resource can be turned on", config: map[string]string{"admissionregistration.k8s.io/v1beta1/validatingadmissionpolicies": "true"}, resource: "validatingadmissionpolicies", example: &admissionregistrationv1beta1.ValidatingAdmissionPolicy{}, want: true},
		{name: "a resource turned on leaves others off", config: map[string]string{"admissionregistration.k8s.io/v1beta1/validatingadmissionpolicies": "true"}, resource: "validatingadmissionpolicybindings", example: &admissionregistrationv1beta1.ValidatingAdmissionPolicyBinding{}},
		{name: "a version can be turned off", config: map[string]string{"apps/v1": "false"}, resource: "deployments", example: &appsv1.Deployment{}},
		{name: "the core version can be turned off", config: map[string]string{"v1": "false"}, resource: "configmaps", example: &corev1.ConfigMap{}},
		{name: "a core resource can be turned off", config: map[string]string{"v1/configmaps": "false"}, resource: "configmaps", example: &corev1.ConfigMap{}},
		{name: "a resource wins over its version", config: map[string]string{"apps/v1": "false", "apps/v1/deployments": ""}, resource: "deployments/scale", example: &appsv1.Deployment{}, want: true},
		{name: "a version wins over its stability", config: map[string]string{"api/ga": "false", "apps/v1": ""}, resource: "deployments", example: &appsv1.Deployment{}, want: true},
		{name: "all can be turned off", config: map[string]string{"api/all": "false"}, resource: "deployments", example: &appsv1.Deployment{}},
		{name: "a stability wins over all", config: map[string]string{"api/all": "false", "api/ga": "true"}, resource: "deployments", example: &appsv1.Deployment{}, want: true},
		{name: "all beta can be turned on", config: map[string]string{"api/beta": ""}, resource: "validatingadmissionpolicies", example: &admissionregistrationv1beta1.ValidatingAdmissionPolicy{}, want: true},
		{name: "all beta can be turned off", config: map[string]string{"api/beta": "false"}, resource: "flowschemas", example: &flowcontrolv1beta3.FlowSchema{}},
		{name: "all alpha can be turned on", release: Release{1, 30}, config: map[string]string{"api/alpha": ""}, resource: "volumeattributesclasses", example: &storagev1alpha1.VolumeAttributesClass{}, want: true},
		{name: "all does not bring back what the release lacks", config: map[string]string{"api/all": ""}, resource: "flowschemas", example: &flowcontrolv1.FlowSchema{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.release == (Release{}) {
				tc.release = Default
			}
			s, err := NewServed(tc.release, tc.config, kindsForTest())
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Serves(gvkOf(t, tc.example), tc.resource); got != tc.want {
				t.Errorf("Serves = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestVersionsAreTheReleases(t *testing.T) {
	flowSchemas := kindsForTest()[0]
	for release, want := range map[Release][]string{
		{1, 28}: {"v1beta3", "v1beta2"},
		{1, 29}: {"v1", "v1beta3"},
		{1, 33}: {"v1"},
		{1, 22}: nil,
	} {
		s, err := NewServed(release, nil, kindsForTest())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, gvk := range s.Versions(flowSchemas) {
			got = append(got, gvk.Version)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s serves %v, want %v", release, got, want)
		}
	}
}

func TestAComputedBetaIsServedUnlessItIsTurnedOff(t *testing.T) {
	k := resource.Computed[*batchv1beta1.CronJob]{Name: "cronjobs"}.Kind()
	for want, config := range map[int]map[string]string{1: nil, 0: {"batch/v1beta1": "false"}} {
		s, err := NewServed(Release{1, 24}, config, []*resource.Kind{k})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(s.Versions(k)); got != want {
			t.Errorf("%v: %d versions are served", config, got)
		}
	}
}

func TestRuntimeConfigIsRefusedByKey(t *testing.T) {
	for _, tc := range []struct {
		name, key, value, want string
	}{
		{name: "a bad value", key: "api/beta", value: "maybe", want: `--runtime-config: key "api/beta": value "maybe" is neither true nor false`},
		{name: "an unknown version", key: "apps/v7", want: `--runtime-config: key "apps/v7": this server knows no such version or resource`},
		{name: "an unknown group", key: "aps/v1", value: "false", want: `key "aps/v1": this server knows no such`},
		{name: "an unknown resource", key: "apps/v1/deploymentz", want: `key "apps/v1/deploymentz": this server knows no such`},
		{name: "a bare word", key: "legacy", want: `key "legacy": a key is api/all`},
		{name: "too many parts", key: "apps/v1/deployments/scale", want: `key "apps/v1/deployments/scale": a key is api/all`},
		{name: "a version that came later", key: "flowcontrol.apiserver.k8s.io/v1", want: `key "flowcontrol.apiserver.k8s.io/v1": release 1.28 does not have it`},
		{name: "a version that was removed", key: "batch/v1beta1/cronjobs", value: "true", want: `key "batch/v1beta1/cronjobs": release 1.28 does not have it`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := NewServed(Default, map[string]string{tc.key: tc.value}, kindsForTest())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error = %v, want one that contains %q", err, tc.want)
			}
		})
	}
}

func TestRuntimeConfigAcceptsVersionsWithoutDeclaration(t *testing.T) {
	gv := schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}
	if _, err := NewServed(Default, map[string]string{gv.String(): "true"}, nil, gv); err != nil {
		t.Error(err)
	}
}

func TestAVersionWithoutDeclarationIsServedUnlessItIsDisabled(t *testing.T) {
	gv := schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}
	for _, tc := range []struct {
		config map[string]string
		want   bool
	}{
		{nil, true},
		{map[string]string{"api/beta": "false"}, true},
		{map[string]string{"apiextensions.k8s.io/v1": "false"}, false},
		{map[string]string{"api/ga": "false"}, false},
		{map[string]string{"api/all": "false"}, false},
		{map[string]string{"api/all": "false", "api/ga": "true"}, true},
		{map[string]string{"api/all": "false", "apiextensions.k8s.io/v1": "true"}, true},
	} {
		s, err := NewServed(Default, tc.config, nil, gv)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.ServesOther(gv); got != tc.want {
			t.Errorf("%v: served = %v, want %v", tc.config, got, tc.want)
		}
	}
}

func TestRuntimeConfigMayTurnOffWhatTheReleaseLacks(t *testing.T) {
	if _, err := NewServed(Default, map[string]string{"batch/v1beta1": "false"}, kindsForTest()); err != nil {
		t.Error(err)
	}
}

// kindsForTest declares FlowSchema in three versions, and the other types that
// the tests name.
func kindsForTest() []*resource.Kind {
	declarations := []resource.Declaration{
		resource.Type[*flowcontrolv1.FlowSchema]{Name: "flowschemas", Versions: []resource.Version{
			converted[flowcontrolv1.FlowSchema, flowcontrolv1beta3.FlowSchema](),
			converted[flowcontrolv1.FlowSchema, flowcontrolv1beta2.FlowSchema](),
		}},
		resource.Type[*appsv1.Deployment]{Name: "deployments"},
		resource.Type[*corev1.ConfigMap]{Name: "configmaps"},
		resource.Type[*batchv1beta1.CronJob]{Name: "cronjobs"},
		resource.Type[*admissionregistrationv1beta1.ValidatingAdmissionPolicy]{Name: "validatingadmissionpolicies"},
		resource.Type[*admissionregistrationv1beta1.ValidatingAdmissionPolicyBinding]{Name: "validatingadmissionpolicybindings"},
	}
	var kinds []*resource.Kind
	for _, d := range declarations {
		kinds = append(kinds, d.Kind())
	}
	return kinds
}

func converted[Hub, Other any, PHub interface {
	*Hub
	resource.Object
}, POther interface {
	*Other
	resource.Object
}]() resource.Version {
	return resource.Convert[Hub, Other, PHub, POther](
		func(*Other, *Hub) error { return nil },
		func(*Hub, *Other) error { return nil },
	)
}

func gvkOf(t *testing.T, obj runtime.Object) schema.GroupVersionKind {
	t.Helper()
	gvks, _, err := clientgoscheme.Scheme.ObjectKinds(obj)
	if err != nil {
		t.Fatal(err)
	}
	return gvks[0]
}

func TestAVersionThatIsNewInTheReleaseIsNotPreferred(t *testing.T) {
	versions := func(group string, names ...string) []schema.GroupVersion {
		var gvs []schema.GroupVersion
		for _, name := range names {
			gvs = append(gvs, schema.GroupVersion{Group: group, Version: name})
		}
		return gvs
	}
	for _, tc := range []struct {
		release Release
		in      []schema.GroupVersion
		want    string
	}{
		{Release{1, 23}, versions("autoscaling", "v2", "v1", "v2beta2"), "v1"},
		{Release{1, 24}, versions("autoscaling", "v2", "v1", "v2beta2"), "v2"},
		{Release{1, 21}, versions("policy", "v1", "v1beta1"), "v1beta1"},
		{Release{1, 22}, versions("policy", "v1", "v1beta1"), "v1"},
		{Release{1, 29}, versions("flowcontrol.apiserver.k8s.io", "v1", "v1beta3"), "v1beta3"},
		{Release{1, 34}, versions("resource.k8s.io", "v1"), "v1"},
	} {
		s, err := NewServed(tc.release, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Order(tc.in)[0].Version; got != tc.want {
			t.Errorf("%v prefers %s, want %s", tc.release, got, tc.want)
		}
	}
}

// Document 2, section 9, rule 4b, for all groups: a version is preferred in place of another
// only after a release that serves both.
func TestThePreferredVersionAdvancesAfterAReleaseWithBoth(t *testing.T) {
	preferred := func(r Release, group string) (schema.GroupVersion, []schema.GroupVersion) {
		t.Helper()
		s, err := NewServed(r, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		var served []schema.GroupVersion
		for _, k := range s.Table().Served(r.inTable()) {
			if k.Group == group && !k.Off && !slices.Contains(served, k.GroupVersion()) {
				served = append(served, k.GroupVersion())
			}
		}
		if len(served) == 0 {
			return schema.GroupVersion{}, nil
		}
		slices.SortFunc(served, func(a, b schema.GroupVersion) int {
			return version.CompareKubeAwareVersionStrings(b.Version, a.Version)
		})
		return s.Order(served)[0], served
	}
	advances := 0
	for _, group := range groupsOf(t) {
		for minor := Oldest.Minor + 1; minor <= Newest.Minor; minor++ {
			before, both := preferred(Release{1, minor - 1}, group)
			after, _ := preferred(Release{1, minor}, group)
			if before.Empty() || after.Empty() || before == after {
				continue
			}
			advances++
			if !slices.Contains(both, after) {
				t.Errorf("1.%d prefers %s, which 1.%d does not serve; it prefers %s", minor, after, minor-1, before)
			}
		}
	}
	if advances < 10 {
		t.Errorf("only %d advances", advances)
	}
}

// groupsOf returns the groups of all releases.
func groupsOf(t *testing.T) []string {
	t.Helper()
	s, err := NewServed(Newest, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var groups []string
	for _, k := range s.Table().Kinds {
		groups = append(groups, k.Group)
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

func TestSubresourcesOfReleases(t *testing.T) {
	for path, want := range map[string][]Release{
		"pods/resize":              {{1, 33}, Newest},
		"pods/ephemeralcontainers": {{1, 23}, {1, 27}, Default, {1, 32}, {1, 33}, Newest},
		"pods/status":              {{1, 16}, {1, 22}, {1, 23}, {1, 27}, Default, {1, 32}, {1, 33}, Newest},
	} {
		for _, r := range []Release{{1, 16}, {1, 22}, {1, 23}, {1, 27}, Default, {1, 32}, {1, 33}, Newest} {
			if s, served := (Served{release: r}), slices.Contains(want, r); s.ServesSubresource(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, path) != served {
				t.Errorf("%v serves %s: %v, want %v", r, path, !served, served)
			}
		}
	}
	resize := Served{release: Default}.WithGates(func(gate string) bool { return gate == "InPlacePodVerticalScaling" })
	if !resize.ServesSubresource(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, "pods/resize") {
		t.Error("pods/resize is not served with its gate")
	}
}

func TestStatusesOfVersionsThatHadNone(t *testing.T) {
	for _, test := range []struct {
		minor    int
		gvk      schema.GroupVersionKind
		resource string
		want     bool
	}{
		{21, schema.GroupVersionKind{Group: "storage.k8s.io", Version: "v1beta1", Kind: "VolumeAttachment"}, "volumeattachments", false},
		{21, schema.GroupVersionKind{Group: "storage.k8s.io", Version: "v1", Kind: "VolumeAttachment"}, "volumeattachments", true},
		{34, schema.GroupVersionKind{Group: "resource.k8s.io", Version: "v1alpha3", Kind: "DeviceTaintRule"}, "devicetaintrules", false},
		{35, schema.GroupVersionKind{Group: "resource.k8s.io", Version: "v1alpha3", Kind: "DeviceTaintRule"}, "devicetaintrules", true},
		{36, schema.GroupVersionKind{Group: "storage.k8s.io", Version: "v1", Kind: "CSINode"}, "csinodes", false},
		{37, schema.GroupVersionKind{Group: "storage.k8s.io", Version: "v1", Kind: "CSINode"}, "csinodes", true},
	} {
		served, err := NewServed(Release{1, test.minor}, map[string]string{"api/all": "true"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := served.ServesSubresource(test.gvk, test.resource+"/status"); got != test.want {
			t.Errorf("1.%d serves the status of %v: %v", test.minor, test.gvk, got)
		}
	}
}

func TestVersionsOfTheBodyOfAnEviction(t *testing.T) {
	for _, test := range []struct {
		version string
		minor   int
		want    bool
	}{
		{"v1beta1", 16, true}, {"v1beta1", 21, true}, {"v1beta1", 22, true}, {"v1beta1", 25, true}, {"v1beta1", 37, true},
		{"v1", 16, false}, {"v1", 21, false}, {"v1", 22, true}, {"v1", 25, true}, {"v1", 37, true},
	} {
		served, err := NewServed(Release{1, test.minor}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := served.Takes(schema.GroupVersionKind{Group: "policy", Version: test.version, Kind: "Eviction"}); got != test.want {
			t.Errorf("1.%d takes policy/%s: %v", test.minor, test.version, got)
		}
	}
}

func TestVersionsOfAggregatedDiscovery(t *testing.T) {
	for _, test := range []struct {
		minor       int
		gates       map[string]bool
		v2beta1, v2 bool
	}{
		{16, nil, false, false},
		{25, nil, false, false},
		{26, nil, false, false},
		{26, map[string]bool{"AggregatedDiscoveryEndpoint": true}, true, true},
		{27, nil, true, true},
		{28, nil, true, true},
		{29, nil, true, true},
		{29, map[string]bool{"AggregatedDiscoveryEndpoint": false}, false, false},
		{30, nil, true, true},
		{32, nil, true, true},
		{33, nil, false, true},
		{34, map[string]bool{"AggregatedDiscoveryRemoveBetaType": false}, true, true},
		{37, nil, false, true},
	} {
		served, err := NewServed(Release{1, test.minor}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if test.gates != nil {
			served = served.WithGates(func(gate string) bool { return test.gates[gate] })
		}
		if v2beta1, v2 := served.Discovery(); v2beta1 != test.v2beta1 || v2 != test.v2 {
			t.Errorf("1.%d with %v: v2beta1 %v, v2 %v", test.minor, test.gates, v2beta1, v2)
		}
	}
}

func TestVersion3OfTheOpenAPIDocuments(t *testing.T) {
	for _, test := range []struct {
		minor int
		gate  *bool
		want  bool
	}{
		{16, nil, false}, {22, nil, false}, {23, nil, false}, {23, ptr.To(true), true}, {24, nil, true}, {26, ptr.To(false), false}, {28, nil, true}, {37, nil, true},
	} {
		served, err := NewServed(Release{1, test.minor}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if test.gate != nil {
			served = served.WithGates(func(gate string) bool { return gate == "OpenAPIV3" && *test.gate })
		}
		if got := served.OpenAPI3(); got != test.want {
			t.Errorf("1.%d with %v: %v", test.minor, test.gate, got)
		}
	}
}

func TestKindsThatNeedAFeatureGate(t *testing.T) {
	bundles := schema.GroupVersionKind{Group: "certificates.k8s.io", Version: "v1beta1", Kind: "ClusterTrustBundle"}
	served, err := NewServed(Release{1, 36}, map[string]string{"api/all": "true"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if served.Serves(bundles, "clustertrustbundles") {
		t.Error("it is served without its gate")
	}
	if !served.WithGates(func(gate string) bool { return gate == "ClusterTrustBundle" }).Serves(bundles, "clustertrustbundles") {
		t.Error("it is not served with its gate")
	}
	bundles.Version = "v1"
	served, err = NewServed(Newest, nil, nil)
	if err != nil || !served.Serves(bundles, "clustertrustbundles") {
		t.Errorf("it is not served by default at %v: %v", Newest, err)
	}
	groups := schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1beta1", Kind: "PodGroup"}
	served, err = NewServed(Newest, map[string]string{"api/beta": "true"}, nil)
	if err != nil || served.Serves(groups, "podgroups") || !served.WithGates(func(gate string) bool { return gate == "GenericWorkload" }).Serves(groups, "podgroups") {
		t.Errorf("groups of pods do not need their gate: %v", err)
	}
}

func TestWhichReleasesHaveAKind(t *testing.T) {
	kind := func(example runtime.Object, older ...runtime.Object) *resource.Kind {
		k := &resource.Kind{Hub: gvkOf(t, example)}
		for _, o := range older {
			k.Versions = append(k.Versions, resource.Version{GVK: gvkOf(t, o)})
		}
		return k
	}
	policies := &resource.Kind{Hub: schema.GroupVersionKind{Group: "policy", Version: "v1beta1", Kind: "PodSecurityPolicy"}}
	classes := kind(&storagev1.VolumeAttributesClass{}, &storagev1beta1.VolumeAttributesClass{}, &storagev1alpha1.VolumeAttributesClass{})
	bundles := kind(&certificatesv1.ClusterTrustBundle{}, &certificatesv1beta1.ClusterTrustBundle{})
	for _, tc := range []struct {
		name    string
		kind    *resource.Kind
		r, last int
		later   bool
		flags   string // at last
		ok      bool
	}{
		{"removed before", policies, 25, 27, false, "", false},
		{"removed meanwhile", policies, 22, 27, true, "", false},
		{"new meanwhile, and stable", classes, 28, 36, true, "", true},
		{"new meanwhile, and off", classes, 28, 30, true, "--runtime-config=storage.k8s.io/v1alpha1=true", true},
		{"new later", classes, 16, 28, false, "", false},
		{"off in two versions", classes, 28, 31, true, "--runtime-config=storage.k8s.io/v1beta1=true", true},
		{"off without a gate", bundles, 28, 36, true, "--runtime-config=certificates.k8s.io/v1beta1=true --feature-gates=ClusterTrustBundle=true", true},
		{"of every release", kind(&corev1.Pod{}), 16, 37, true, "", true},
	} {
		served, err := NewServed(Release{1, tc.r}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		flags, ok := served.FlagsAt(Release{1, tc.last}, tc.kind)
		if later := served.HasLater(tc.kind, Release{1, tc.last}); later != tc.later || ok != tc.ok || strings.Join(flags, " ") != tc.flags {
			t.Errorf("%s: %v, %q, %v", tc.name, later, flags, ok)
		}
	}
}
