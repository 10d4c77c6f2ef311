package resource_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis"
	"svc.dev/svc/apis/resource"
)

func TestADeclarationOfANameAloneIsEnough(t *testing.T) {
	k := resource.Type[*corev1.ReplicationController]{Name: "replicationcontrollers"}.Kind()
	if k.Singular != "replicationcontroller" || k.WatchField != "metadata.name" {
		t.Errorf("singular %q, watched by %q", k.Singular, k.WatchField)
	}
	if want := (schema.GroupVersionKind{Version: "v1", Kind: "ReplicationController"}); k.Hub != want {
		t.Errorf("the hub is %s", k.Hub)
	}
	if msgs := k.NameRule("Not_A_Subdomain", false); len(msgs) == 0 {
		t.Error("any name is accepted")
	}
	obj, old := k.New(), k.New()
	k.Default(obj)
	k.PrepareCreate(t.Context(), nil, obj)
	k.PrepareUpdate(t.Context(), nil, obj, old)
	k.PrepareStatus(nil, obj, old)
	errs := slices.Concat(k.Validate(obj), k.ValidateCreate(obj), k.ValidateUpdate(obj, old), k.ValidateStatus(obj, old), k.RestrictStatus(nil, obj, old))
	if len(errs) > 0 || len(k.Warn(obj, nil)) > 0 {
		t.Errorf("errors of rules that are not declared: %v", errs)
	}
	if k.Scale != nil || k.GracePeriod != nil || k.Terminate != nil || k.Held != nil || k.BeginCreate != nil || k.BeginUpdate != nil ||
		k.AfterDelete != nil || k.Reservations != nil || k.Answer != nil {
		t.Error("a hook is set that is not declared")
	}
	if _, ok := k.NewList().(*corev1.ReplicationControllerList); !ok {
		t.Errorf("its list is %T", k.NewList())
	}
}

func TestEveryPartOfADeclarationIsCarriedOver(t *testing.T) {
	var called []string
	call := func(name string) { called = append(called, name) }
	errs := func(name string) field.ErrorList { call(name); return nil }
	k := resource.Type[*corev1.Pod]{
		Name: "pods", Singular: "one", ShortNames: []string{"po"}, Categories: []string{"all"}, Namespaced: true,
		NameRule:       func(string, bool) []string { call("NameRule"); return nil },
		Default:        func(*corev1.Pod) { call("Default") },
		PrepareCreate:  func(context.Context, *resource.Env, *corev1.Pod) { call("PrepareCreate") },
		PrepareUpdate:  func(_ context.Context, _ *resource.Env, _, _ *corev1.Pod) { call("PrepareUpdate") },
		Validate:       func(*corev1.Pod) field.ErrorList { return errs("Validate") },
		ValidateCreate: func(*corev1.Pod) field.ErrorList { return errs("ValidateCreate") },
		ValidateUpdate: func(_, _ *corev1.Pod) field.ErrorList { return errs("ValidateUpdate") },
		Warn:           func(_, old *corev1.Pod) []string { call(fmt.Sprint("Warn ", old == nil)); return nil },
		PrepareStatus:  func(_ *resource.Env, _, _ *corev1.Pod) { call("PrepareStatus") },
		ValidateStatus: func(_, _ *corev1.Pod) field.ErrorList { return errs("ValidateStatus") },
		RestrictStatus: func(_ *resource.Env, _, _ *corev1.Pod) field.ErrorList { return errs("RestrictStatus") },
		GracePeriod:    func(*corev1.Pod, *int64) int64 { call("GracePeriod"); return 0 },
		Terminate:      func(*corev1.Pod) { call("Terminate") },
		Held:           func(*corev1.Pod) bool { call("Held"); return false },
		BeginCreate: func(context.Context, *resource.Env, *corev1.Pod, bool) (func(bool), error) {
			call("BeginCreate")
			return nil, nil
		},
		BeginUpdate: func(context.Context, *resource.Env, *corev1.Pod, *corev1.Pod, bool) (func(bool), error) {
			call("BeginUpdate")
			return nil, nil
		},
		AfterDelete:  func(context.Context, *resource.Env, *corev1.Pod) { call("AfterDelete") },
		Reservations: func(*corev1.Pod) map[string][]string { call("Reservations"); return nil },
		Views: []resource.View[*corev1.Pod]{{
			Name: "v", Prepare: func(_ *resource.Env, _, _ *corev1.Pod) { call("view Prepare") },
			Validate: func(_, _ *corev1.Pod) field.ErrorList { return errs("view Validate") },
		}},
		Columns: []resource.Column[*corev1.Pod]{{Name: "C", Value: func(*corev1.Pod) any { call("column"); return nil }}},
		Fields:  map[string]func(*corev1.Pod) string{"f": func(*corev1.Pod) string { call("field"); return "" }},
		Status:  true, StatusOnCreate: true, Generation: true, CreateOnUpdate: true, RequireVersion: true, OrphanByDefault: true,
		TTL: func(*resource.Env) time.Duration { return 5 }, WatchField: "f",
	}.Kind()
	obj, old := k.New(), k.New()
	k.NameRule("", false)
	k.Default(obj)
	k.PrepareCreate(t.Context(), nil, obj)
	k.PrepareUpdate(t.Context(), nil, obj, old)
	k.Validate(obj)
	k.ValidateCreate(obj)
	k.ValidateUpdate(obj, old)
	k.Warn(obj, nil)
	k.Warn(obj, old)
	k.PrepareStatus(nil, obj, old)
	k.ValidateStatus(obj, old)
	k.RestrictStatus(nil, obj, old)
	k.GracePeriod(obj, nil)
	k.Terminate(obj)
	k.Held(obj)
	_, _ = k.BeginCreate(t.Context(), nil, obj, false)
	_, _ = k.BeginUpdate(t.Context(), nil, obj, old, false)
	k.AfterDelete(t.Context(), nil, obj)
	k.Reservations(obj)
	k.Views[0].Prepare(nil, obj, old)
	k.Views[0].Validate(obj, old)
	k.Columns[0].Value(obj)
	k.Fields["f"](obj)
	want := "NameRule Default PrepareCreate PrepareUpdate Validate ValidateCreate ValidateUpdate Warn true Warn false PrepareStatus ValidateStatus RestrictStatus " +
		"GracePeriod Terminate Held BeginCreate BeginUpdate AfterDelete Reservations view Prepare view Validate column field"
	if got := strings.Join(called, " "); got != want {
		t.Errorf("called %s\nwant   %s", got, want)
	}
	if !k.Status || !k.StatusOnCreate || !k.Generation || !k.CreateOnUpdate || !k.RequireVersion || !k.OrphanByDefault || !k.Namespaced ||
		k.TTL(nil) != 5 || k.WatchField != "f" || k.Singular != "one" || len(k.ShortNames) != 1 || len(k.Categories) != 1 {
		t.Errorf("lost on the way: %+v", k)
	}
}

func TestAScaleReadsAndWritesTheDeclaredFields(t *testing.T) {
	k := resource.Type[*corev1.ReplicationController]{
		Name: "replicationcontrollers",
		Scale: &resource.Scale[*corev1.ReplicationController]{
			Replicas: func(r *corev1.ReplicationController) **int32 { return &r.Spec.Replicas },
			Current:  func(r *corev1.ReplicationController) int32 { return r.Status.Replicas },
		},
	}.Kind()
	obj := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u"}, Status: corev1.ReplicationControllerStatus{Replicas: 2}}
	check := func(wanted int32) {
		t.Helper()
		scale, err := k.Scale.Get(obj)
		if err != nil {
			t.Fatal(err)
		}
		if scale.Spec.Replicas != wanted || scale.Status != (autoscalingv1.ScaleStatus{Replicas: 2}) || scale.UID != "u" || scale.Name != "a" {
			t.Errorf("the scale is %+v", scale)
		}
	}
	check(0)
	k.Scale.Set(obj, 7)
	check(7)
}

func TestAVirtualTypeHasNoListAndAnAnswer(t *testing.T) {
	k := resource.Virtual[*corev1.Binding]{Name: "bindings", Run: func(_ context.Context, _ *resource.Env, b *corev1.Binding, _ bool) (runtime.Object, error) {
		return &metav1.Status{Message: b.Target.Name}, nil
	}}.Kind()
	got, err := k.Answer(t.Context(), nil, &corev1.Binding{Target: corev1.ObjectReference{Name: "n"}}, false)
	if status, ok := got.(*metav1.Status); err != nil || !ok || status.Message != "n" {
		t.Errorf("answered %v, %v", got, err)
	}
	if k.NewList() != nil {
		t.Errorf("its list is %T", k.NewList())
	}
}

func TestAComputedTypeIsAskedForWithItsGoType(t *testing.T) {
	obj := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Labels: map[string]string{"a": "b"}}}
	gone := errors.New("gone")
	k := resource.Computed[*corev1.Pod]{
		Name: "pods", Namespaced: true,
		Get: func(_ context.Context, _ *resource.Env, _, name string) (*corev1.Pod, error) {
			if name == "p" {
				return obj, nil
			}
			return nil, gone
		},
		List: func(context.Context, *resource.Env, resource.Selection) ([]*corev1.Pod, error) {
			return []*corev1.Pod{obj}, nil
		},
	}.Kind()
	if k.Stored() || k.Singular != "pod" || k.NewList() == nil {
		t.Errorf("got %+v", k)
	}
	if got, err := k.Computed.Get(t.Context(), nil, "ns", "p"); got != runtime.Object(obj) || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := k.Computed.Get(t.Context(), nil, "ns", "q"); got != nil || !errors.Is(err, gone) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := k.Computed.List(t.Context(), nil, resource.Selection{}); len(got) != 1 || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
	for _, test := range []struct {
		selection resource.Selection
		want      bool
	}{
		{resource.Selection{Labels: labels.Everything(), Fields: fields.Everything()}, true},
		{resource.Selection{Namespace: "ns", Labels: labels.Everything(), Fields: fields.Everything()}, true},
		{resource.Selection{Namespace: "other", Labels: labels.Everything(), Fields: fields.Everything()}, false},
		{resource.Selection{Labels: labels.Nothing(), Fields: fields.Everything()}, false},
		{resource.Selection{Labels: labels.Everything(), Fields: fields.OneTermEqualSelector("metadata.namespace", "ns")}, true},
		{resource.Selection{Labels: labels.Everything(), Fields: fields.OneTermNotEqualSelector("metadata.name", "p")}, false},
	} {
		if test.selection.Selects(obj) != test.want {
			t.Errorf("%+v: want %t", test.selection, test.want)
		}
	}
}

// event declares Event with its second version.
func event() *resource.Kind {
	second := resource.Convert(
		func(in *eventsv1.Event, out *corev1.Event) error {
			out.ObjectMeta, out.Message = in.ObjectMeta, in.Note
			return nil
		},
		func(in *corev1.Event, out *eventsv1.Event) error {
			if in.Message == "bad" {
				return fmt.Errorf("%s cannot be shown", in.Name)
			}
			out.ObjectMeta, out.Note = in.ObjectMeta, in.Message
			return nil
		},
	).WithFieldLabels(map[string]string{"note": "message"})
	return resource.Type[*corev1.Event]{
		Name: "events", Namespaced: true, Versions: []resource.Version{second},
		Default: func(e *corev1.Event) { resource.FillEmpty(&e.Type, "Normal") },
		Fields:  map[string]func(*corev1.Event) string{"message": func(e *corev1.Event) string { return e.Message }},
	}.Kind()
}

func TestAnotherVersionConvertsThroughTheHubAndIsDefaulted(t *testing.T) {
	k := event()
	s, err := apis.NewScheme([]*resource.Kind{k})
	if err != nil {
		t.Fatal(err)
	}
	hub, err := s.ConvertToVersion(&eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Note: "hello"}, runtime.InternalGroupVersioner)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := hub.(*corev1.Event); !ok || got.Message != "hello" || got.Type != "Normal" {
		t.Errorf("the hub is %#v", hub)
	}
	list := &corev1.EventList{
		ListMeta: metav1.ListMeta{ResourceVersion: "5", Continue: "next", RemainingItemCount: new(int64(3)), ShardInfo: &metav1.ShardInfo{Selector: "shard"}},
		Items:    []corev1.Event{{Message: "one"}, {Message: "two"}},
	}
	other, err := s.ConvertToVersion(list, eventsv1.SchemeGroupVersion)
	if err != nil {
		t.Fatal(err)
	}
	got, ok := other.(*eventsv1.EventList)
	if !ok || len(got.Items) != 2 || got.Items[1].Note != "two" || got.ResourceVersion != "5" || got.Continue != "next" || *got.RemainingItemCount != 3 || got.ShardInfo == nil || got.ShardInfo.Selector != "shard" {
		t.Errorf("the list is %#v", other)
	}
	list.Items[1] = corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Message: "bad"}
	if _, err := s.ConvertToVersion(list, eventsv1.SchemeGroupVersion); err == nil || !strings.Contains(err.Error(), "b cannot be shown") {
		t.Errorf("an item that cannot be converted: %v", err)
	}
}

func TestFieldLabelsAreThoseOfTheirVersion(t *testing.T) {
	k := event()
	s, err := apis.NewScheme([]*resource.Kind{k})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		gvk         schema.GroupVersionKind
		label, want string
	}{
		{k.Hub, "metadata.name", "metadata.name"},
		{k.Hub, "metadata.namespace", "metadata.namespace"},
		{k.Hub, "message", "message"},
		{k.Hub, "note", ""},
		{k.Versions[0].GVK, "note", "message"},
		{k.Versions[0].GVK, "metadata.name", "metadata.name"},
		{k.Versions[0].GVK, "message", ""},
	} {
		got, value, err := s.ConvertFieldLabel(test.gvk, test.label, "x")
		if test.want == "" {
			if err == nil || !strings.Contains(err.Error(), "field label not supported: "+test.label+"; use m") {
				t.Errorf("%s of %s: %q, %v", test.label, test.gvk, got, err)
			}
		} else if err != nil || got != test.want || value != "x" {
			t.Errorf("%s of %s: %q, %v", test.label, test.gvk, got, err)
		}
	}
}

func TestAClusterWideKindHasNoNamespaceToSelectBy(t *testing.T) {
	k := resource.Type[*corev1.Node]{Name: "nodes"}.Kind()
	s, err := apis.NewScheme([]*resource.Kind{k})
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := s.ConvertFieldLabel(k.Hub, "metadata.namespace", "x"); err == nil {
		t.Errorf("got %q", got)
	}
}

func TestTheHubIsTheInternalVersion(t *testing.T) {
	k := event()
	s, err := apis.NewScheme([]*resource.Kind{k})
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"", "events.k8s.io"} {
		for kind, want := range map[string]string{"Event": "*v1.Event", "EventList": "*v1.EventList"} {
			obj, err := s.New(schema.GroupVersion{Group: group, Version: runtime.APIVersionInternal}.WithKind(kind))
			if err != nil || fmt.Sprintf("%T", obj) != want {
				t.Errorf("%s of %q is %T, %v", kind, group, obj, err)
				continue
			}
			if gvks, _, err := s.ObjectKinds(obj); err != nil || !slices.Contains(gvks, k.Hub.GroupVersion().WithKind(kind)) {
				t.Errorf("%s of %q is of the kinds %v, %v, not of the hub", kind, group, gvks, err)
			}
		}
	}
	external := apis.NewExternalScheme([]*resource.Kind{k})
	for gvk := range external.AllKnownTypes() {
		if gvk.Version == runtime.APIVersionInternal && gvk.Kind != "WatchEvent" {
			t.Errorf("the external scheme knows %s", gvk)
		}
	}
}

func TestDefaultsReachTheItemsOfLists(t *testing.T) {
	k := event()
	s, err := apis.NewScheme([]*resource.Kind{k})
	if err != nil {
		t.Fatal(err)
	}
	list := &corev1.EventList{Items: []corev1.Event{{}, {Type: "Warning"}}}
	s.Default(list)
	if list.Items[0].Type != "Normal" || list.Items[1].Type != "Warning" {
		t.Errorf("got %+v", list.Items)
	}
}

func TestATypeThatIsNotOfTheAPIIsRefused(t *testing.T) {
	defer func() {
		if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "*v1.PartialObjectMetadata is not a type of k8s.io/api") {
			t.Errorf("recovered %v", r)
		}
	}()
	resource.Type[*metav1.PartialObjectMetadata]{Name: "partials"}.Kind()
}

func TestColumnsAreOfReleases(t *testing.T) {
	for _, test := range []struct {
		since, until, minor int
		want                bool
	}{
		{0, 0, 16, true},
		{30, 0, 29, false}, {30, 0, 30, true},
		{0, 32, 32, true}, {0, 32, 33, false},
	} {
		if c := (resource.KindColumn{Since: test.since, Until: test.until}); c.In(test.minor) != test.want {
			t.Errorf("%+v", test)
		}
	}
}
