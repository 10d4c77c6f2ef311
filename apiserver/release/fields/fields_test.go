package fields

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"svc.dev/svc/apis"
	"svc.dev/svc/apis/openapi"
	"svc.dev/svc/internal/releases"
)

func at(t *testing.T, r releases.Release) *Fields {
	t.Helper()
	table, err := releases.LoadKinds()
	if err != nil {
		t.Fatal(err)
	}
	return New(r, table)
}

var (
	pods        = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	deployments = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	definitions = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
)

func TestTheNewestReleaseLacksNothing(t *testing.T) {
	f := at(t, releases.Newest)
	if f != nil || f.Of(pods, reflect.TypeFor[corev1.Pod]()) != nil {
		t.Errorf("%+v", f)
	}
}

// documents are objects and patches of them, with the fields that a release lacks.
var documents = []struct {
	release  releases.Release
	gvk      schema.GroupVersionKind
	of       reflect.Type
	document string
	lacking  string // fields, in alphabetical order
}{
	{28, pods, reflect.TypeFor[corev1.Pod](), `{"spec":{"hostnameOverride":"h","hostUsers":false,"containers":[{"name":"c"},{"name":"d","lifecycle":{"preStop":{"sleep":{"seconds":1}},"stopSignal":"SIGTERM"}}]}}`,
		"spec.containers[1].lifecycle.preStop.sleep spec.containers[1].lifecycle.stopSignal spec.hostnameOverride"},
	{24, pods, reflect.TypeFor[corev1.Pod](), `{"spec":{"hostUsers":false,"os":{"name":"linux"}}}`, "spec.hostUsers"},
	{37, pods, reflect.TypeFor[corev1.Pod](), `{"spec":{"hostnameOverride":"h"}}`, ""},
	{28, deployments, reflect.TypeFor[appsv1.Deployment](), `{"spec":{"template":{"spec":{"volumes":[{"name":"v","image":{"reference":"r"}}]}}},"status":{"terminatingReplicas":1}}`,
		"spec.template.spec.volumes[0].image status.terminatingReplicas"},
	{28, pods, reflect.TypeFor[corev1.Pod](), `{"metadata":{"name":"image","labels":{"hostnameOverride":"stays"}}}`, ""},
	// A type that contains itself, in maps, in lists and where either is possible.
	{28, definitions, reflect.TypeFor[apiextensionsv1.CustomResourceDefinition](), `{"spec":{"versions":[{"name":"v1","selectableFields":[{"jsonPath":".a"}],"schema":{"openAPIV3Schema":{"properties":` +
		`{"a":{"items":{"x-kubernetes-validations":[{"rule":"true","optionalOldSelf":true}]}},"selectableFields":{"type":"string"}}}}}]}}`,
		"spec.versions[0].schema.openAPIV3Schema.properties.a.items.x-kubernetes-validations[0].optionalOldSelf spec.versions[0].selectableFields"},
	// The release does not serve the kind.
	{22, schema.GroupVersionKind{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"}, reflect.TypeFor[batchv1.Job](), `{"spec":{}}`, ""},
}

func TestFieldsThatTheReleaseLacks(t *testing.T) {
	for _, test := range documents {
		n := at(t, test.release).Of(test.gvk, test.of)
		var wanted []string
		for name := range strings.FieldsSeq(test.lacking) {
			wanted = append(wanted, fmt.Sprintf("unknown field %q", name))
		}
		check := func(how string, found []string) {
			slices.Sort(found)
			if !slices.Equal(found, wanted) {
				t.Errorf("%v %s %s: %q, want %q", test.release, test.document, how, found, wanted)
			}
		}
		if len(wanted) > 0 && !n.MayLack([]byte(test.document)) {
			t.Errorf("%v %s: has nothing to look for", test.release, test.document)
		}
		cut, found, err := n.Cut([]byte(test.document))
		if err != nil {
			t.Fatal(err)
		}
		check("cut", found)
		var dropped map[string]any
		if err := json.Unmarshal([]byte(test.document), &dropped); err != nil {
			t.Fatal(err)
		}
		check("dropped", n.Drop(dropped))
		var same map[string]any
		if err := json.Unmarshal(cut, &same); err != nil || !reflect.DeepEqual(same, dropped) {
			t.Errorf("%v: cut %s, dropped %v", test.release, cut, dropped)
		}
		if n == nil {
			continue
		}
		typed := reflect.New(test.of)
		if err := json.Unmarshal([]byte(test.document), typed.Interface()); err != nil {
			t.Fatal(err)
		}
		check("pruned", n.prune(typed.Elem(), nil, keepNone))
		check("pruned twice", append(n.prune(typed.Elem(), nil, keepNone), wanted...))
	}
}

func TestCutKeepsWhatItDoesNotCut(t *testing.T) {
	n := at(t, 28).Of(pods, reflect.TypeFor[corev1.Pod]())
	rest, found, err := n.Cut([]byte(` {"spec": {"hostnameOverride":null, "typo":1e2,"typo":2, "$setElementOrder/containers":[{"name":"ä"}]}, "z":[], "a":{}}`))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	if got, want := string(rest), `{"spec":{"typo":1e2,"typo":2,"$setElementOrder/containers":[{"name":"ä"}]},"z":[],"a":{}}`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	for _, invalid := range []string{`{`, `{"spec":}`, `{"spec":[1,]}`, `{1:2}`} {
		if _, _, err := n.Cut([]byte(invalid)); err == nil {
			t.Errorf("%s is accepted", invalid)
		}
	}
}

func TestCutOperations(t *testing.T) {
	n := at(t, 28).Of(pods, reflect.TypeFor[corev1.Pod]())
	for _, test := range []struct{ patch, rest, lacking string }{
		{`[{"op":"add","path":"/spec/hostnameOverride","value":"h"}]`, `[]`, "spec.hostnameOverride"},
		{`[{"op":"remove","path":"/spec/hostnameOverride"}]`, `[{"op":"remove","path":"/spec/hostnameOverride"}]`, ""},
		{`[{"op":"add","path":"/spec/volumes/-","value":{"name":"v","image":{}}}]`, `[{"op":"add","path":"/spec/volumes/-","value":{"name":"v"}}]`, "spec.volumes[0].image"},
		{`[{"op":"replace","path":"/spec/volumes/2/image/reference","value":"r"}]`, `[]`, "spec.volumes[2].image"},
		{`[{"op":"add","path":"/metadata/labels/hostnameOverride","value":"h"}]`, `[{"op":"add","path":"/metadata/labels/hostnameOverride","value":"h"}]`, ""},
		{`[{"op":"replace","path":"","value":{"spec":{"hostnameOverride":"h"}}}]`, `[{"op":"replace","path":"","value":{"spec":{}}}]`, "spec.hostnameOverride"},
	} {
		rest, found, err := n.CutOperations([]byte(test.patch))
		var want []string
		if test.lacking != "" {
			want = []string{fmt.Sprintf("unknown field %q", test.lacking)}
		}
		if err != nil || !slices.Equal(found, want) || !sameJSON(t, rest, test.rest) {
			t.Errorf("%s: %s, %q, %v", test.patch, rest, found, err)
		}
	}
}

func sameJSON(t *testing.T, got []byte, want string) bool {
	t.Helper()
	var a, b any
	if err := json.Unmarshal(got, &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(a, b)
}

func TestDecodersRemoveFieldsThatTheReleaseLacks(t *testing.T) {
	codecs := at(t, 28).Codecs(clientgoscheme.Codecs.WithoutConversion())
	const document = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"typo":1,"hostnameOverride":"h","nodeName":"n","nodeName":"n"}}`
	for _, info := range codecs.SupportedMediaTypes() {
		if info.MediaType != runtime.ContentTypeJSON {
			continue
		}
		obj, _, err := info.StrictSerializer.Decode([]byte(document), &pods, nil)
		if err == nil || err.Error() != `strict decoding error: unknown field "spec.typo", duplicate field "spec.nodeName", unknown field "spec.hostnameOverride"` {
			t.Errorf("strict: %v", err)
		}
		if pod := obj.(*corev1.Pod); pod.Spec.HostnameOverride != nil || pod.Spec.NodeName != "n" {
			t.Errorf("strict: %+v", pod.Spec)
		}
		obj, _, err = info.Serializer.Decode([]byte(document), &pods, nil)
		if pod, ok := obj.(*corev1.Pod); err != nil || !ok || pod.Spec.HostnameOverride != nil {
			t.Errorf("not strict: %+v, %v", obj, err)
		}
		// What a patch leaves as it is.
		obj, _, err = info.Serializer.Decode([]byte(document), nil, nil)
		if pod, ok := obj.(*corev1.Pod); err != nil || !ok || pod.Spec.HostnameOverride == nil {
			t.Errorf("patched: %+v, %v", obj, err)
		}
	}
}

func TestValuesThatTheReleaseLacks(t *testing.T) {
	chain := at(t, 28).Admission(nil, func(runtime.Object) (schema.GroupVersionKind, bool) { return pods, true })
	pod := func(operators ...corev1.TolerationOperator) *corev1.Pod {
		var p corev1.Pod
		for _, operator := range operators {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "k", Operator: operator})
		}
		return &p
	}
	for _, test := range []struct {
		obj, old *corev1.Pod
		want     string
	}{
		{pod("Exists", ""), nil, ""},
		{pod("Exists", "Gt"), nil, `spec.tolerations[1].operator: Unsupported value: "Gt": supported values: "Equal", "Exists"`},
		{pod("Exists", "Gt"), pod("Gt"), ""},
		{pod("Lt"), pod("Gt"), `spec.tolerations[0].operator: Unsupported value: "Lt": supported values: "Equal", "Exists"`},
	} {
		operation, old := admission.Create, runtime.Object(nil)
		if test.old != nil {
			operation, old = admission.Update, test.old
		}
		err := chain.(admission.ValidationInterface).Validate(t.Context(), admission.NewAttributesRecord(test.obj, old, pods, "n", "p", pods.GroupVersion().WithResource("pods"), "", operation, nil, false, nil), nil)
		if test.want == "" && err != nil || test.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%v, %v: %v, want %q", test.obj.Spec.Tolerations, test.old, err, test.want)
		}
	}
}

// injector is an admission plugin that sets fields, as a webhook may.
type injector struct {
	*admission.Handler
	set func(runtime.Object)
}

func (i injector) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	i.set(a.GetObject())
	return nil
}

func TestAdmissionSetsNoFieldsThatTheReleaseLacks(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	init := func(names ...string) *corev1.Pod {
		var p corev1.Pod
		for _, name := range names {
			c := corev1.Container{Name: name}
			if strings.HasPrefix(name, "sidecar") {
				c.RestartPolicy = &always
			}
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		}
		return &p
	}
	job := func(pod *corev1.Pod) *batchv1.CronJob {
		return &batchv1.CronJob{Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: pod.Spec}}}}}
	}
	of := func(obj runtime.Object) *corev1.PodSpec {
		if j, ok := obj.(*batchv1.CronJob); ok {
			return &j.Spec.JobTemplate.Spec.Template.Spec
		}
		return &obj.(*corev1.Pod).Spec
	}
	hubs := map[reflect.Type]schema.GroupVersionKind{reflect.TypeFor[*corev1.Pod](): pods, reflect.TypeFor[*batchv1.CronJob](): batchv1.SchemeGroupVersion.WithKind("CronJob")}
	hub := func(obj runtime.Object) (schema.GroupVersionKind, bool) {
		gvk, ok := hubs[reflect.TypeOf(obj)]
		return gvk, ok
	}
	inject := injector{admission.NewHandler(admission.Create, admission.Update), func(obj runtime.Object) {
		spec := of(obj)
		spec.InitContainers = append(init("sidecar-new").Spec.InitContainers, spec.InitContainers...)
		spec.HostnameOverride = new("h")
	}}
	scheme, err := apis.NewScheme(apis.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	interfaces := admission.NewObjectInterfacesFromScheme(scheme)
	for _, test := range []struct {
		name      string
		release   releases.Release
		obj, old  runtime.Object
		requested schema.GroupVersionKind
		keeps     int // sidecars
		hostname  bool
	}{
		{"a release that has the field", 28, init(), nil, pods, 1, false},
		{"one that has both", 37, init(), nil, pods, 1, true},
		{"one that has none", 27, init(), nil, pods, 0, false},
		{"what is stored, moved by the plugin", 27, init("a", "sidecar"), init("a", "sidecar"), pods, 2, false},
		{"what is stored elsewhere only", 27, init("a"), init("a"), pods, 0, false},
		{"a kind that the release serves in another version", 20, job(init()), nil, schema.GroupVersionKind{Group: "batch", Version: "v1beta1", Kind: "CronJob"}, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			operation := admission.Create
			if test.old != nil {
				operation = admission.Update
			}
			chain := at(t, test.release).Admission(inject, hub)
			a := admission.NewAttributesRecord(test.obj, test.old, test.requested, "n", "p", schema.GroupVersionResource{}, "", operation, nil, false, nil)
			if err := chain.(admission.MutationInterface).Admit(t.Context(), a, interfaces); err != nil {
				t.Fatal(err)
			}
			sidecars := 0
			for _, c := range of(test.obj).InitContainers {
				if c.RestartPolicy != nil {
					sidecars++
				}
			}
			if sidecars != test.keeps || (of(test.obj).HostnameOverride != nil) != test.hostname {
				t.Errorf("%d sidecars, want %d: %+v", sidecars, test.keeps, of(test.obj))
			}
		})
	}
}

func TestAdmissionKeepsTheStatusThatAnAgentReports(t *testing.T) {
	scheme, err := apis.NewScheme(apis.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	gvk := corev1.SchemeGroupVersion.WithKind("Node")
	hub := func(runtime.Object) (schema.GroupVersionKind, bool) { return gvk, true }
	reported := []corev1.NodeRuntimeHandler{{Name: "runc"}}
	for _, test := range []struct {
		name string
		set  func(*corev1.Node)
	}{
		{"plugins set nothing", func(*corev1.Node) {}},
		{"a plugin sets another field", func(n *corev1.Node) { n.Status.Features = &corev1.NodeFeatures{} }},
	} {
		plugin := injector{admission.NewHandler(admission.Update), func(obj runtime.Object) { test.set(obj.(*corev1.Node)) }}
		obj := &corev1.Node{Status: corev1.NodeStatus{RuntimeHandlers: slices.Clone(reported)}}
		a := admission.NewAttributesRecord(obj, &corev1.Node{}, gvk, "", "n", schema.GroupVersionResource{}, "status", admission.Update, nil, false, nil)
		if err := at(t, 28).Admission(plugin, hub).(admission.MutationInterface).Admit(t.Context(), a, admission.NewObjectInterfacesFromScheme(scheme)); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(obj.Status.RuntimeHandlers, reported) || obj.Status.Features != nil {
			t.Errorf("%s: %+v", test.name, obj.Status)
		}
	}
}

// The objects are as the decoder and the conversion from v1beta1 leave them.
func TestAdmissionKeepsDefaultsOfVersionsThatTheReleaseServes(t *testing.T) {
	scheme, err := apis.NewScheme(apis.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		requested schema.GroupVersionKind
		body      string
		hub       runtime.Object
		at        func(runtime.Object) string
	}{
		{
			schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1beta1", Kind: "Ingress"}, `{"spec":{"rules":[{"http":{"paths":[{"path":"/","backend":{"serviceName":"s","servicePort":80}}]}}]}}`,
			&networkingv1.Ingress{}, func(obj runtime.Object) string {
				return string(*obj.(*networkingv1.Ingress).Spec.Rules[0].HTTP.Paths[0].PathType)
			},
		},
		{
			schema.GroupVersionKind{Group: "certificates.k8s.io", Version: "v1beta1", Kind: "CertificateSigningRequest"}, `{"spec":{"request":"YQ=="}}`,
			&certificatesv1.CertificateSigningRequest{}, func(obj runtime.Object) string {
				return obj.(*certificatesv1.CertificateSigningRequest).Spec.SignerName
			},
		},
	} {
		obj, err := scheme.New(test.requested)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(test.body), obj); err != nil {
			t.Fatal(err)
		}
		scheme.Default(obj)
		if err := scheme.Convert(obj, test.hub, nil); err != nil {
			t.Fatal(err)
		}
		want := test.at(test.hub)
		hub := func(obj runtime.Object) (schema.GroupVersionKind, bool) {
			gvks, _, err := scheme.ObjectKinds(obj)
			return gvks[0], err == nil
		}
		idle := injector{admission.NewHandler(admission.Create), func(runtime.Object) {}}
		a := admission.NewAttributesRecord(test.hub, nil, test.requested, "n", "a", schema.GroupVersionResource{}, "", admission.Create, nil, false, nil)
		if err := at(t, 16).Admission(idle, hub).(admission.MutationInterface).Admit(t.Context(), a, admission.NewObjectInterfacesFromScheme(scheme)); err != nil {
			t.Fatal(err)
		}
		if got := test.at(test.hub); got != want || got == "" {
			t.Errorf("%v: %q, want %q", test.requested, got, want)
		}
	}
}

func TestDefinitionsHaveTheFieldsOfTheRelease(t *testing.T) {
	const pod, image, toleration = "io.k8s.api.core.v1.Volume", "io.k8s.api.core.v1.ImageVolumeSource", "io.k8s.api.core.v1.Toleration"
	ref := func(name string) spec.Ref { return spec.MustCreateRef("#/definitions/" + name) }
	for _, test := range []struct {
		release releases.Release
		has     bool
		values  int
	}{{28, false, 2}, {37, true, 4}} {
		made := at(t, test.release).Definitions(openapi.Definitions)("io.k8s.api.core.v1.Pod")(ref)
		if _, has := made[pod].Schema.Properties["image"]; has != test.has {
			t.Errorf("%v: image %v", test.release, has)
		}
		if has := slices.Contains(made[pod].Dependencies, image); has != test.has {
			t.Errorf("%v: depends on images %v", test.release, has)
		}
		node := at(t, test.release).Definitions(openapi.Definitions)("io.k8s.api.storage.v1.CSINode")(ref)
		if _, has := node["io.k8s.api.storage.v1.CSINode"].Schema.Properties["status"]; !has {
			t.Errorf("%v: no status of CSINodes, which is in every response", test.release)
		}
		operator := made[toleration].Schema.Properties["operator"]
		if len(operator.Enum) != test.values || strings.Count(operator.Description, " - `") != test.values {
			t.Errorf("%v: %v, %s", test.release, operator.Enum, operator.Description)
		}
	}
}

func TestDefinitionsHaveTheFieldsThatOnlyTheReleaseHas(t *testing.T) {
	const service = "io.k8s.api.core.v1.ServiceSpec"
	ref := func(name string) spec.Ref { return spec.MustCreateRef("#/definitions/" + name) }
	for release, want := range map[releases.Release]bool{16: false, 17: true, 21: true, 22: false} {
		made := at(t, release).Definitions(openapi.Definitions)("io.k8s.api.core.v1.Service")(ref)
		if _, has := made[service].Schema.Properties["topologyKeys"]; has != want {
			t.Errorf("%v: topologyKeys %v, want %v", release, has, want)
		}
	}
}

func TestLacksFindsFieldsByTheirPaths(t *testing.T) {
	old := at(t, releases.Release(32))
	for path, want := range map[string]bool{
		"status.observedGeneration":            true,
		"status.conditions.observedGeneration": true,
		"status.phase":                         false,
		"status.none":                          false,
		"none.observedGeneration":              false,
	} {
		if got := old.Lacks(pods, strings.Split(path, ".")...); got != want {
			t.Errorf("%s: %t, want %t", path, got, want)
		}
	}
	if at(t, releases.Release(33)).Lacks(pods, "status", "observedGeneration") {
		t.Error("1.33 lacks the observed generation of pods")
	}
	if at(t, releases.Newest).Lacks(pods, "status", "observedGeneration") {
		t.Error("the newest release lacks a field")
	}
	policies := schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}
	if at(t, releases.Release(28)).Lacks(policies, "status", "observedGeneration") {
		t.Error("a release lacks a field that no release has")
	}
	budgets := schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}
	if at(t, releases.Release(16)).Lacks(budgets, "status", "observedGeneration") {
		t.Error("a release lacks a field of a kind that it does not serve")
	}
}
