package fields

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"svc.dev/svc/internal/featuregates"
	"svc.dev/svc/internal/releases"
)

func gatedAt(t *testing.T, r releases.Release, on ...string) *Gated {
	t.Helper()
	g, err := NewGated(r, func(gate string) bool { return featuregates.On(r, gate) || slices.Contains(on, gate) })
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func decode[T any](t *testing.T, document string) *T {
	t.Helper()
	into := new(T)
	if document == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(document), into); err != nil {
		t.Fatal(err)
	}
	return into
}

func TestFieldsOfFeaturesThatAreOffAreDropped(t *testing.T) {
	const sidecar = `{"initContainers":[{"name":"s","resources":{},"restartPolicy":"Always"}],"containers":[{"name":"c","resources":{}}]}`
	const plain = `{"initContainers":[{"name":"s","resources":{}}],"containers":[{"name":"c","resources":{}}]}`
	for _, test := range []struct {
		rule           string
		release        releases.Release
		on             string
		old, spec, get string
	}{
		{"a feature in alpha is off", 28, "", "", sidecar, plain},
		{"its gate turns it on", 28, "SidecarContainers", "", sidecar, sidecar},
		{"a feature in beta is on", 29, "", "", sidecar, sidecar},
		{"a feature whose gate has been removed is on", 37, "", "", sidecar, sidecar},
		{"an object that has the feature keeps it", 28, "", sidecar, sidecar, sidecar},
		{"an object that has another feature does not", 28, "", `{"containers":[{"name":"c","resizePolicy":[{"resourceName":"cpu","restartPolicy":"NotRequired"}]}]}`, sidecar, plain},
		{"a field that is one of init containers only is left to the validation of others", 28, "",
			"", `{"containers":[{"name":"c","resources":{},"restartPolicy":"Always"}]}`, `{"containers":[{"name":"c","resources":{},"restartPolicy":"Always"}]}`},
		{"a field may have two gates, of different releases", 26, "UserNamespacesStatelessPodsSupport", "", `{"containers":null,"hostUsers":false}`, `{"containers":null,"hostUsers":false}`},
		{"neither of which is on", 30, "SidecarContainers", "", `{"containers":null,"hostUsers":false}`, `{"containers":null}`},
		{"a value is set instead", 28, "", "", `{"containers":[{"name":"c","resources":{},"securityContext":{"procMount":"Unmasked"}}]}`,
			`{"containers":[{"name":"c","resources":{},"securityContext":{"procMount":"Default"}}]}`},
	} {
		t.Run(test.rule, func(t *testing.T) {
			pod := &corev1.Pod{Spec: *decode[corev1.PodSpec](t, test.spec)}
			var old runtime.Object
			if spec := decode[corev1.PodSpec](t, test.old); spec != nil {
				old = &corev1.Pod{Spec: *spec}
			}
			gatedAt(t, test.release, test.on).Drop(pod, old)
			got, err := json.Marshal(pod.Spec)
			if err != nil || string(got) != test.get {
				t.Errorf("got %s, %v\nwant %s", got, err, test.get)
			}
		})
	}
}

func TestTemplatesAndClaimsLoseFieldsToo(t *testing.T) {
	g := gatedAt(t, 28)
	cron := decode[batchv1.CronJob](t, `{"spec":{"jobTemplate":{"spec":{"podReplacementPolicy":"Failed","template":{"spec":{"hostUsers":true}}}}}}`)
	dropped := g.Drop(cron, nil)
	if want := []string{
		`field "podReplacementPolicy" is dropped: the feature gate JobPodReplacementPolicy is off`, `field "hostUsers" is dropped: the feature gate UserNamespacesStatelessPodsSupport is off`,
	}; !slices.Equal(slices.Sorted(slices.Values(dropped)), slices.Sorted(slices.Values(want))) {
		t.Errorf("it says %q", dropped)
	}
	if job := cron.Spec.JobTemplate.Spec; job.PodReplacementPolicy != nil || job.Template.Spec.HostUsers != nil {
		t.Errorf("%+v", job)
	}
	claim := decode[corev1.PersistentVolumeClaim](t, `{"spec":{"dataSourceRef":{"kind":"A","name":"a","namespace":"b"}}}`)
	g.Drop(claim, nil)
	local := decode[corev1.PersistentVolumeClaim](t, `{"spec":{"dataSourceRef":{"kind":"A","name":"a"}}}`)
	g.Drop(local, nil)
	if claim.Spec.DataSourceRef != nil || local.Spec.DataSourceRef == nil {
		t.Errorf("a source of another namespace: %v; of its own: %v", claim.Spec.DataSourceRef, local.Spec.DataSourceRef)
	}
	empty := decode[corev1.PersistentVolumeClaim](t, `{"spec":{"dataSourceRef":{"kind":"A","name":"a","namespace":""}}}`)
	if g.Drop(empty, nil); empty.Spec.DataSourceRef == nil {
		t.Error("a source with an empty namespace is dropped")
	}
	set := decode[appsv1.StatefulSet](t, `{"spec":{"volumeClaimTemplates":[{"spec":{"dataSourceRef":{"kind":"A","name":"a","namespace":"b"}}}]}}`)
	if g.Drop(set, nil); set.Spec.VolumeClaimTemplates[0].Spec.DataSourceRef == nil {
		t.Error("the source of a template is dropped, which Kubernetes validates")
	}
}

// TestTypesInsideOfThemselvesLoseFieldsAtEveryLevel: templates of groups have templates.
func TestTypesInsideOfThemselvesLoseFieldsAtEveryLevel(t *testing.T) {
	const template = `{"name":"a","schedulingPolicy":{},"preemptionPolicy":"Never","podGroupTemplates":[{"name":"b","schedulingPolicy":{},"preemptionPolicy":"Never"}]`
	w := decode[schedulingv1beta1.Workload](t, `{"metadata":{},"spec":{"compositePodGroupTemplates":[`+template+`,"compositePodGroupTemplates":[`+template+`}]}]}}`)
	kept := w.DeepCopy()
	g := gatedAt(t, 37, "GenericWorkload", "CompositePodGroup")
	g.Drop(w, nil)
	if text, err := json.Marshal(w); err != nil || strings.Contains(string(text), "preemptionPolicy") || !strings.Contains(string(text), `"compositePodGroupTemplates":[{"name":"a"`) {
		t.Errorf("got %s, %v", text, err)
	}
	gatedAt(t, 37, "GenericWorkload", "CompositePodGroup", "PodGroupPreemptionPolicy").Drop(kept, nil)
	if text, err := json.Marshal(kept); err != nil || strings.Count(string(text), "preemptionPolicy") != 4 {
		t.Errorf("with the gate: got %s, %v", text, err)
	}
	if n := g.of(reflect.TypeFor[apiextensionsv1.JSONSchemaProps]()); n != nil {
		t.Errorf("a type that refers to itself and has no such field is visited: %+v", n)
	}
}

func TestFieldsOfFeaturesThatAreOffHaveNoDefaults(t *testing.T) {
	g := gatedAt(t, 28)
	set := g.Default(&batchv1.Job{}, func(obj runtime.Object) {
		spec := &obj.(*batchv1.Job).Spec
		spec.PodReplacementPolicy, spec.Suspend = ptr.To(batchv1.Failed), ptr.To(true)
		if spec.ManualSelector == nil { // since 1.29
			spec.ManualSelector = ptr.To(false)
		}
	})
	job := &batchv1.Job{}
	if set(job); job.Spec.PodReplacementPolicy != nil || job.Spec.ManualSelector != nil || job.Spec.Suspend == nil {
		t.Errorf("%+v", job.Spec)
	}
	job = &batchv1.Job{Spec: batchv1.JobSpec{PodReplacementPolicy: ptr.To(batchv1.TerminatingOrFailed)}}
	if set(job); job.Spec.PodReplacementPolicy == nil {
		t.Error("an object that has the feature loses it")
	}
	job = &batchv1.Job{Spec: batchv1.JobSpec{ManualSelector: ptr.To(false)}}
	set(job)
	if g.Drop(job, nil); job.Spec.ManualSelector == nil {
		t.Error("a value that is set is dropped")
	}
}

func TestEachLineNamesAFieldAndGates(t *testing.T) {
	all, err := readGated()
	if err != nil {
		t.Fatal(err)
	}
	ever, err := featuregates.Ever()
	if err != nil {
		t.Fatal(err)
	}
	for in, fields := range all {
		of := releases.FindType(strings.TrimSuffix(in, "!"))
		if of == nil {
			t.Errorf("there is no type %s", in)
			continue
		}
		for _, f := range fields {
			row, _ := of.Field(f.field, releases.Newest)
			if row == nil && in != "core/v1.Probe" && in != "core/v1.EphemeralContainer" { // fields of types that they embed
				t.Errorf("%s has no field %s", in, f.field)
			}
			for _, gate := range f.gates {
				if f.since == 0 && !slices.Contains(ever, gate) {
					t.Errorf("%s %s: there is no gate %s", in, f.field, gate)
				}
			}
			if f.since == 0 && !ActsOn(f.gates[0]) {
				t.Errorf("%s is not acted on", f.gates[0])
			}
		}
	}
	if ActsOn("NodeSwap") {
		t.Error("no field depends on NodeSwap")
	}
}

func TestAReleaseWithoutGatesThatAreOffDropsNothing(t *testing.T) {
	g, err := NewGated(28, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if n := g.of(reflect.TypeFor[corev1.Pod]()); n != nil {
		t.Errorf("%+v", n)
	}
}
