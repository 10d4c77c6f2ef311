package history

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"svc.dev/svc/controllers/index"
)

func newHistory(objects ...client.Object) *History {
	byController := index.ByController(&appsv1.ControllerRevision{})
	uid := 0
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).
		WithIndex(byController.Object, byController.Name, byController.Values).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
				uid++
				obj.SetUID(types.UID(fmt.Sprint(uid)))
				return c.Create(ctx, obj, o...)
			},
		}).Build()
	return &History{Client: c, Live: c, Kind: appsv1.SchemeGroupVersion.WithKind("StatefulSet")}
}

func newOwner(image string) Owner {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "db", UID: "db", Annotations: map[string]string{
		"kubernetes.io/change-cause": image, corev1.LastAppliedConfigAnnotation: "{}",
	}}}
	set.Spec.Template = corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "db"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "db", Image: image}}},
	}
	return Owner{Object: set, Selector: labels.SelectorFromSet(set.Spec.Template.Labels), Template: &set.Spec.Template}
}

func mustSync(t *testing.T, h *History, o Owner) Revisions {
	t.Helper()
	r, err := h.Sync(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func describe(r Revisions) string {
	var words []string
	for _, revision := range r.All {
		template, err := Template(revision)
		if err != nil {
			return err.Error()
		}
		words = append(words, fmt.Sprintf("%d:%s", revision.Revision, template.Spec.Containers[0].Image))
	}
	return strings.Join(words, " ")
}

func TestEachTemplateHasOneRevisionAndARollbackMakesItTheNewest(t *testing.T) {
	h := newHistory(newOwner("1").Object)
	for _, step := range []struct{ image, want string }{
		{"1", "1:1"}, {"1", "1:1"}, {"2", "1:1 2:2"}, {"3", "1:1 2:2 3:3"}, {"1", "2:2 3:3 4:1"}, {"1", "2:2 3:3 4:1"},
	} {
		r := mustSync(t, h, newOwner(step.image))
		if got := describe(r); got != step.want || r.Newest != r.All[len(r.All)-1] || r.Collisions != nil {
			t.Errorf("image %s: %s, want %s; collisions %v", step.image, got, step.want, r.Collisions)
		}
	}
}

func TestARevisionHasTheLabelsOfTheTemplateAndTheChangeCause(t *testing.T) {
	h := newHistory(newOwner("1").Object)
	r := mustSync(t, h, newOwner("1")).Newest
	hash := r.Labels[HashLabel]
	if r.Name != "db-"+hash || r.Labels["app"] != "db" || !metav1.IsControlledBy(r, newOwner("1").Object) {
		t.Errorf("%s, labels %v, owners %v", r.Name, r.Labels, r.OwnerReferences)
	}
	if len(r.Annotations) != 1 || r.Annotations["kubernetes.io/change-cause"] != "1" {
		t.Errorf("annotations %v", r.Annotations)
	}
	if !strings.Contains(string(r.Data.Raw), `"$patch":"replace"`) {
		t.Errorf("data %s", r.Data.Raw)
	}
}

func TestANameThatIsTakenGivesACollision(t *testing.T) {
	o := newOwner("1")
	taken, err := newRevision(o, 1)
	if err != nil {
		t.Fatal(err)
	}
	taken.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "other", UID: "other", Controller: ptr.To(true)}}
	h := newHistory(o.Object, taken)
	r := mustSync(t, h, o)
	if ptr.Deref(r.Collisions, 0) != 1 || r.Newest.Name == taken.Name || describe(r) != "1:1" {
		t.Errorf("collisions %v, name %s, %s", r.Collisions, r.Newest.Name, describe(r))
	}
}

func TestARevisionWhoseCreationHadNoResponseIsUsed(t *testing.T) {
	h := newHistory(newOwner("1").Object)
	first := mustSync(t, h, newOwner("1")).Newest
	created, collisions, err := h.create(t.Context(), newOwner("1"), 1)
	if err != nil || created.UID != first.UID || collisions != nil {
		t.Errorf("%v, collisions %v, error %v", created, collisions, err)
	}
}

func TestRevisionsBeyondTheLimitAreTheOldestThatAreNotInUse(t *testing.T) {
	var all []*appsv1.ControllerRevision
	for i := range 5 {
		all = append(all, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}})
	}
	inUse := func(r *appsv1.ControllerRevision) bool { return r.Name == "1" || r.Name == "4" }
	for _, tt := range []struct {
		limit int32
		want  string
	}{{-1, ""}, {0, "0 2 3"}, {1, "0 2"}, {2, "0"}, {3, ""}} {
		got := ""
		for _, r := range Beyond(all, inUse, &tt.limit) {
			got += " " + r.Name
		}
		if got = strings.TrimSpace(got); got != tt.want {
			t.Errorf("limit %d: %q, want %q", tt.limit, got, tt.want)
		}
	}
}

func TestDeleteDeletesRevisions(t *testing.T) {
	h := newHistory(newOwner("1").Object)
	r := mustSync(t, h, newOwner("1"))
	if err := h.Delete(t.Context(), append(r.All, r.Newest)); err != nil { // twice: it may have gone
		t.Fatal(err)
	}
	var list appsv1.ControllerRevisionList
	if err := h.Client.List(t.Context(), &list); err != nil || len(list.Items) != 0 {
		t.Errorf("%d left, %v", len(list.Items), err)
	}
}
