package autoscaling

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/randfill"

	autoscalingv2beta1 "svc.dev/svc/apis/removed/autoscaling/v2beta1"
)

func TestVersion1CarriesTheRestInAnnotations(t *testing.T) {
	hub := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"note": "mine", metricsAnnotation: "not mine"}},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			MaxReplicas: 10,
			Metrics: []autoscalingv2.MetricSpec{cpuUtilization(70), {Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{
				Metric: autoscalingv2.MetricIdentifier{Name: "rps"},
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: ptr.To(resource.MustParse("1k"))},
			}}},
			Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: &autoscalingv2.HPAScalingRules{
				StabilizationWindowSeconds: ptr.To[int32](0),
				Policies:                   []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15}},
			}},
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			Conditions: []autoscalingv2.HorizontalPodAutoscalerCondition{{Type: autoscalingv2.AbleToScale, Status: corev1.ConditionTrue}},
		},
	}
	var v1 autoscalingv1.HorizontalPodAutoscaler
	if err := toV1(hub, &v1); err != nil {
		t.Fatal(err)
	}
	if got := ptr.Deref(v1.Spec.TargetCPUUtilizationPercentage, 0); got != 70 {
		t.Errorf("the target is %d%% of CPU, want 70%%", got)
	}
	want := map[string]string{
		"note":               "mine",
		metricsAnnotation:    `[{"type":"Pods","pods":{"metricName":"rps","targetAverageValue":"1k"}}]`,
		behaviorAnnotation:   `{"ScaleUp":{"StabilizationWindowSeconds":0,"SelectPolicy":null,"Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":15}],"Tolerance":null},"ScaleDown":null}`,
		conditionsAnnotation: `[{"type":"AbleToScale","status":"True","lastTransitionTime":null}]`,
	}
	if diff := cmp.Diff(want, v1.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if hub.Annotations[metricsAnnotation] != "not mine" {
		t.Error("the object converted from was modified")
	}
}

func TestAnUnreadableAnnotationIsAnError(t *testing.T) {
	v1 := &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{behaviorAnnotation: "{"}}}
	if err := fromV1(v1, &autoscalingv2.HorizontalPodAutoscaler{}); err == nil || !strings.Contains(err.Error(), behaviorAnnotation) {
		t.Errorf("got error %v, want one that names the annotation", err)
	}
}

func TestVersion1GetsTheDefaultMetric(t *testing.T) {
	var hub autoscalingv2.HorizontalPodAutoscaler
	if err := fromV1(&autoscalingv1.HorizontalPodAutoscaler{}, &hub); err != nil {
		t.Fatal(err)
	}
	defaultHorizontalPodAutoscaler(&hub)
	var v1 autoscalingv1.HorizontalPodAutoscaler
	if err := toV1(&hub, &v1); err != nil {
		t.Fatal(err)
	}
	if ptr.Deref(v1.Spec.TargetCPUUtilizationPercentage, 0) != 80 || ptr.Deref(v1.Spec.MinReplicas, 0) != 1 || v1.Annotations != nil {
		t.Errorf("got %v with annotations %v, want 80%% of CPU, one replica and no annotations", v1.Spec, v1.Annotations)
	}
}

// FuzzVersion2ThroughVersion1 checks that nothing is lost on the way from
// version 2 to version 1 and back.
func FuzzVersion2ThroughVersion1(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		hub := &autoscalingv2.HorizontalPodAutoscaler{}
		filler(data).Fill(hub)
		before, want := hub.DeepCopy(), hub.DeepCopy()
		moveCPULast(want)
		back := through1(t, hub)
		if !apiequality.Semantic.DeepEqual(want, back) {
			t.Errorf("the way through version 1 changes the object:\n%s", cmp.Diff(want, back))
		}
		if !apiequality.Semantic.DeepEqual(before, hub) {
			t.Error("the conversion modified its input")
		}
	})
}

// FuzzVersion1ThroughVersion2 checks that nothing is lost on the way from
// version 1 to version 2 and back. The annotations may say more afterwards.
func FuzzVersion1ThroughVersion2(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		v1, back := &autoscalingv1.HorizontalPodAutoscaler{}, &autoscalingv1.HorizontalPodAutoscaler{}
		filler(data).Fill(v1)
		hub := &autoscalingv2.HorizontalPodAutoscaler{}
		if err := fromV1(v1.DeepCopy(), hub); err != nil {
			t.Fatal(err)
		}
		if err := toV1(hub, back); err != nil {
			t.Fatal(err)
		}
		back.Annotations = withoutCarried(back.Annotations)
		if !apiequality.Semantic.DeepEqual(v1, back) {
			t.Errorf("the way through version 2 changes the object:\n%s", cmp.Diff(v1, back))
		}
		once := through1(t, hub)
		if twice := through1(t, once); !apiequality.Semantic.DeepEqual(once, twice) {
			t.Errorf("a second way changes the object:\n%s", cmp.Diff(once, twice))
		}
	})
}

// FuzzVersion2ThroughVersion2beta1 checks that nothing is lost on the way from version
// 2 to version 2beta1 and back.
func FuzzVersion2ThroughVersion2beta1(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		hub, back := &autoscalingv2.HorizontalPodAutoscaler{}, &autoscalingv2.HorizontalPodAutoscaler{}
		filler(data).Fill(hub)
		before := hub.DeepCopy()
		var beta autoscalingv2beta1.HorizontalPodAutoscaler
		if err := toV2beta1(hub, &beta); err != nil {
			t.Fatal(err)
		}
		encoded, err := beta.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		var decoded autoscalingv2beta1.HorizontalPodAutoscaler
		if err := decoded.Unmarshal(encoded); err != nil {
			t.Fatal(err)
		}
		if !apiequality.Semantic.DeepEqual(&beta, &decoded) {
			t.Errorf("protobuf changes the object:\n%s", cmp.Diff(&beta, &decoded))
		}
		if err := fromV2beta1(decoded.DeepCopyObject().(*autoscalingv2beta1.HorizontalPodAutoscaler), back); err != nil {
			t.Fatal(err)
		}
		if !apiequality.Semantic.DeepEqual(before, back) {
			t.Errorf("the way through version 2beta1 changes the object:\n%s", cmp.Diff(before, back))
		}
		if !apiequality.Semantic.DeepEqual(before, hub) {
			t.Error("the conversion modified its input")
		}
	})
}

func through1(t *testing.T, hub *autoscalingv2.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscaler {
	t.Helper()
	var v1 autoscalingv1.HorizontalPodAutoscaler
	if err := toV1(hub, &v1); err != nil {
		t.Fatal(err)
	}
	back := &autoscalingv2.HorizontalPodAutoscaler{}
	if err := fromV1(v1.DeepCopy(), back); err != nil {
		t.Fatal(err)
	}
	return back
}

// addSeeds makes plain test runs try a hundred objects, always the same.
func addSeeds(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		data := make([]byte, 0, 4096)
		for len(data) < cap(data) {
			data = binary.LittleEndian.AppendUint64(data, random.Uint64())
		}
		f.Add(data)
	}
}

// filler fills autoscalers as validation lets them be: a metric has the source
// that its type names, and a target the value that its type names.
func filler(data []byte) *randfill.Filler {
	return randfill.NewFromGoFuzz(data).NilChance(0.2).NumElements(0, 3).Funcs(
		func(m *metav1.TypeMeta, _ randfill.Continue) {},
		func(m *metav1.ObjectMeta, c randfill.Continue) {
			m.Name = c.String(0)
			if c.Bool() {
				m.Annotations = map[string]string{"note": c.String(0)}
			}
		},
		func(at *metav1.Time, c randfill.Continue) { at.Time = time.Unix(int64(c.Uint32()), 0) },
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewMilliQuantity(1+int64(c.Uint32()), resource.DecimalSI)
		},
		fillMetric, fillMetricStatus,
		func(b *autoscalingv2.HorizontalPodAutoscalerBehavior, c randfill.Continue) {
			c.FillNoCustom(b)
			if b.ScaleUp == nil && b.ScaleDown == nil {
				b.ScaleUp = &autoscalingv2.HPAScalingRules{} // defaulting sees to both
			}
		},
	)
}

func fillMetric(m *autoscalingv2.MetricSpec, c randfill.Continue) {
	target := func(types ...autoscalingv2.MetricTargetType) autoscalingv2.MetricTarget {
		t := autoscalingv2.MetricTarget{Type: types[c.Intn(len(types))]}
		switch t.Type {
		case autoscalingv2.ValueMetricType:
			t.Value = &resource.Quantity{}
			c.Fill(t.Value)
		case autoscalingv2.AverageValueMetricType:
			t.AverageValue = &resource.Quantity{}
			c.Fill(t.AverageValue)
		case autoscalingv2.UtilizationMetricType:
			t.AverageUtilization = ptr.To(c.Int31())
		}
		return t
	}
	sources := []autoscalingv2.MetricSpec{
		{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{}},
		{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{}},
		{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{}},
		{Type: autoscalingv2.ContainerResourceMetricSourceType, ContainerResource: &autoscalingv2.ContainerResourceMetricSource{}},
		{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{}},
	}
	switch *m = sources[c.Intn(len(sources))]; {
	case m.Object != nil:
		c.Fill(m.Object)
		m.Object.Target = target(autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType)
	case m.Pods != nil:
		c.Fill(m.Pods)
		m.Pods.Target = target(autoscalingv2.AverageValueMetricType)
	case m.Resource != nil:
		m.Resource.Name = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}[c.Intn(2)]
		m.Resource.Target = target(autoscalingv2.UtilizationMetricType, autoscalingv2.AverageValueMetricType)
	case m.ContainerResource != nil:
		c.Fill(m.ContainerResource)
		m.ContainerResource.Target = target(autoscalingv2.UtilizationMetricType, autoscalingv2.AverageValueMetricType)
	case m.External != nil:
		c.Fill(m.External)
		m.External.Target = target(autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType)
	}
}

// fillMetricStatus sets the values that the controller reports.
func fillMetricStatus(m *autoscalingv2.MetricStatus, c randfill.Continue) {
	c.FillNoCustom(m)
	value, average := &resource.Quantity{}, &resource.Quantity{}
	c.Fill(value)
	c.Fill(average)
	if m.Object != nil {
		m.Object.Current = autoscalingv2.MetricValueStatus{Value: value, AverageValue: average}
	}
	if m.Pods != nil {
		m.Pods.Current = autoscalingv2.MetricValueStatus{AverageValue: average}
	}
	if m.Resource != nil {
		m.Resource.Current = autoscalingv2.MetricValueStatus{AverageValue: average, AverageUtilization: ptr.To(c.Int31())}
	}
	if m.ContainerResource != nil {
		m.ContainerResource.Current = autoscalingv2.MetricValueStatus{AverageValue: average}
	}
	if m.External != nil {
		m.External.Current = autoscalingv2.MetricValueStatus{Value: value}
	}
}

// moveCPULast moves the metric that has a field of its own in version 1 to
// where version 2 then has it.
func moveCPULast(h *autoscalingv2.HorizontalPodAutoscaler) {
	for i, m := range h.Spec.Metrics {
		if isCPUUtilization(&m) {
			h.Spec.Metrics = append(append(h.Spec.Metrics[:i:i], h.Spec.Metrics[i+1:]...), m)
			return
		}
	}
}
