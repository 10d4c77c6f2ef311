package registry_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/registry/registrytest"
)

const (
	spaces = "/api/v1/namespaces"
	aSpace = spaces + "/a"
)

// space declares a kind with a Held of its own, beside finalizers.
func space() resource.Type[*corev1.Namespace] {
	return resource.Type[*corev1.Namespace]{
		Name: "namespaces", Status: true,
		Views: []resource.View[*corev1.Namespace]{{
			Name: "finalize", NoPatch: true,
			Prepare: func(_ *resource.Env, ns, old *corev1.Namespace) { ns.Status = old.Status },
		}},
		Terminate: func(ns *corev1.Namespace) { ns.Status.Phase = corev1.NamespaceTerminating },
		Held:      func(ns *corev1.Namespace) bool { return len(ns.Spec.Finalizers) > 0 },
	}
}

func newSpace(name, spec, finalizers string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %s, finalizers: [%s]}, spec: {finalizers: [%s]}}`, name, finalizers, spec)
}

func startSpace(t *testing.T, spec, finalizers string) *registrytest.Stack {
	t.Helper()
	s := registrytest.Start(t, space())
	s.Do(http.MethodPost, spaces, newSpace("a", spec, finalizers)).Want(http.StatusCreated)
	return s
}

func TestAnObjectThatIsNotHeldIsDeletedAtOnce(t *testing.T) {
	s := startSpace(t, "", "")
	s.Do(http.MethodDelete, aSpace, nil).Want(http.StatusOK)
	s.Do(http.MethodGet, aSpace, nil).Want(http.StatusNotFound)
}

func TestAHeldObjectTerminatesUntilItIsNoLongerHeld(t *testing.T) {
	s := startSpace(t, "x/y", "")
	got := s.Do(http.MethodDelete, aSpace, nil).Want(http.StatusOK)
	first := got.Field("metadata", "deletionTimestamp")
	if first == nil || got.Field("metadata", "deletionGracePeriodSeconds") != nil || got.Field("status", "phase") != "Terminating" {
		t.Errorf("the answer is %s", got.Body)
	}
	again := s.Do(http.MethodDelete, aSpace, nil).Want(http.StatusOK)
	if again.Field("metadata", "deletionTimestamp") != first {
		t.Errorf("a second request moved the deletion from %v to %v", first, again.Field("metadata", "deletionTimestamp"))
	}
	s.Do(http.MethodPut, aSpace+"/finalize", newSpace("a", "", "")).Want(http.StatusOK)
	s.Do(http.MethodGet, aSpace, nil).Want(http.StatusNotFound)
}

func TestAnObjectStaysUntilFinalizersAreRemovedAndItIsNotHeld(t *testing.T) {
	s := startSpace(t, "x/y", "y/z")
	s.Do(http.MethodDelete, aSpace, nil).Want(http.StatusOK)
	s.Do(http.MethodPut, aSpace+"/finalize", newSpace("a", "", "y/z")).Want(http.StatusOK)
	s.Do(http.MethodDelete, aSpace, nil).Want(http.StatusOK)
	if got := s.Do(http.MethodGet, aSpace, nil).Want(http.StatusOK); got.Field("metadata", "finalizers") == nil {
		t.Errorf("the finalizers are gone: %s", got.Body)
	}
	s.Patch("merge", aSpace, `{metadata: {finalizers: null}}`).Want(http.StatusOK)
	s.Do(http.MethodGet, aSpace, nil).Want(http.StatusNotFound)
}

func TestRemovingTheFinalizerOfAHeldObjectDoesNotDeleteIt(t *testing.T) {
	s := startSpace(t, "x/y", "y/z")
	s.Do(http.MethodDelete, aSpace, nil).Want(http.StatusOK)
	s.Patch("merge", aSpace, `{metadata: {finalizers: null}}`).Want(http.StatusOK)
	s.Do(http.MethodGet, aSpace, nil).Want(http.StatusOK)
	s.Do(http.MethodPut, aSpace+"/finalize", newSpace("a", "", "")).Want(http.StatusOK)
	s.Do(http.MethodGet, aSpace, nil).Want(http.StatusNotFound)
}

func TestATerminatingKindHonoursPreconditions(t *testing.T) {
	for _, held := range []string{"", "x/y"} {
		t.Run("held by ["+held+"]", func(t *testing.T) {
			s := startSpace(t, held, "")
			obj := s.Do(http.MethodGet, aSpace, nil).Object()
			for _, wrong := range []string{`uid: other`, `resourceVersion: "1"`} {
				s.Do(http.MethodDelete, aSpace, fmt.Sprintf(`{preconditions: {%s}}`, wrong)).Want(http.StatusConflict, "Precondition failed: ")
			}
			if s.Do(http.MethodGet, aSpace, nil).Object().GetResourceVersion() != obj.GetResourceVersion() {
				t.Error("a refused deletion changed the object")
			}
			s.Do(http.MethodDelete, aSpace, fmt.Sprintf(`{preconditions: {uid: %s, resourceVersion: "%s"}}`, obj.GetUID(), obj.GetResourceVersion())).Want(http.StatusOK)
			if code := s.Do(http.MethodGet, aSpace, nil).Code; (code == http.StatusNotFound) != (held == "") {
				t.Errorf("after the deletion a GET answers %d", code)
			}
		})
	}
}

// replacer replaces the namespace "a" by another of the same name while the deletion
// numbered at is validated.
type replacer struct {
	s        *registrytest.Stack
	at, seen int
}

func (*replacer) Handles(op admission.Operation) bool { return op == admission.Delete }

func (r *replacer) Validate(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	if r.seen++; r.seen == r.at {
		r.s.Do(http.MethodDelete, aSpace, nil).Want(http.StatusOK)
		r.s.Do(http.MethodPut, aSpace+"/finalize", newSpace("a", "", "")) // not found unless it is held
		r.s.Do(http.MethodPost, spaces, newSpace("a", "x/y", "")).Want(http.StatusCreated)
	}
	return nil
}

func TestADelayedDeletionDoesNotTouchANewObjectOfTheSameName(t *testing.T) {
	for name, test := range map[string]struct {
		held string
		at   int
	}{
		"a held object is replaced before it is marked":   {held: "x/y", at: 1},
		"another object is replaced before it is marked":  {at: 1},
		"another object is replaced before it is removed": {at: 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := &replacer{at: test.at}
			r.s = registrytest.StartWith(t, r, space())
			old := r.s.Do(http.MethodPost, spaces, newSpace("a", test.held, "")).Want(http.StatusCreated).Object()
			r.s.Do(http.MethodDelete, aSpace, nil).Want(http.StatusConflict)
			left := r.s.Do(http.MethodGet, aSpace, nil).Want(http.StatusOK).Object()
			if left.GetUID() == old.GetUID() || left.GetDeletionTimestamp() != nil {
				t.Errorf("left is %v, the deletion was requested for %s", left.Object, old.GetUID())
			}
		})
	}
}

func TestADryRunOfATerminatingDeletionChangesNothing(t *testing.T) {
	for _, held := range []string{"", "x/y"} {
		t.Run("held by ["+held+"]", func(t *testing.T) {
			s := startSpace(t, held, "")
			before := s.Do(http.MethodGet, aSpace, nil)
			s.Do(http.MethodDelete, aSpace+"?dryRun=All", nil).Want(http.StatusOK)
			if after := s.Do(http.MethodGet, aSpace, nil); string(after.Body) != string(before.Body) {
				t.Errorf("%s became %s", before.Body, after.Body)
			}
		})
	}
}

func TestThePropagationPolicyBecomesAFinalizer(t *testing.T) {
	for policy, want := range map[string]string{"Foreground": "foregroundDeletion", "Orphan": "orphan", "Background": ""} {
		for kind, stack := range map[string]struct {
			path string
			make func(t *testing.T) *registrytest.Stack
		}{
			"that terminates":         {aSpace, func(t *testing.T) *registrytest.Stack { return startSpace(t, "x/y", "y/z") }},
			"that does not terminate": {aSet, func(t *testing.T) *registrytest.Stack { return startHeldSet(t, set()) }},
		} {
			t.Run(policy+" of a kind "+kind, func(t *testing.T) {
				s := stack.make(t)
				s.Do(http.MethodDelete, stack.path, `{propagationPolicy: `+policy+`}`)
				got := strings.Join(s.Do(http.MethodGet, stack.path, nil).Want(http.StatusOK).Object().GetFinalizers(), " ")
				if got != strings.TrimSpace("y/z "+want) {
					t.Errorf("the finalizers are %q", got)
				}
			})
		}
	}
}

// Such a deletion of a namespace is in the foreground unless it orphans, as in kube-apiserver;
// that of other kinds is then in the background.
func TestOrphanDependentsBecomesAFinalizer(t *testing.T) {
	for orphan, want := range map[bool]string{true: "y/z orphan", false: "y/z foregroundDeletion"} {
		s := startSpace(t, "x/y", "y/z")
		s.Do(http.MethodDelete, aSpace, map[string]any{"orphanDependents": orphan})
		if got := strings.Join(s.Do(http.MethodGet, aSpace, nil).Object().GetFinalizers(), " "); got != want {
			t.Errorf("orphanDependents %t: the finalizers are %q", orphan, got)
		}
	}
}

func startHeldSet(t *testing.T, d resource.Type[*appsv1.Deployment]) *registrytest.Stack {
	t.Helper()
	s := registrytest.Start(t, d)
	s.Do(http.MethodPost, sets, `{metadata: {name: a, finalizers: [y/z]}}`).Want(http.StatusCreated)
	return s
}

func TestDependentsAreOrphanedByDefaultWhereTheDeclarationSaysSo(t *testing.T) {
	for orphan, want := range map[bool]string{true: "[y/z orphan]", false: "[y/z]"} {
		d := set()
		d.OrphanByDefault = orphan
		s := startHeldSet(t, d)
		s.Do(http.MethodDelete, aSet, nil)
		if got := fmt.Sprint(s.Do(http.MethodGet, aSet, nil).Object().GetFinalizers()); got != want {
			t.Errorf("orphan by default %v: the finalizers are %s", orphan, got)
		}
	}
}

// One request must not delete all namespaces.
func TestAKindThatTerminatesHasNoDeleteCollection(t *testing.T) {
	s := startSpace(t, "", "")
	s.Do(http.MethodDelete, spaces, nil).Want(http.StatusMethodNotAllowed)
	s.Do(http.MethodGet, aSpace, nil).Want(http.StatusOK)
}

func TestDeleteCollectionDeletesTheSelectedObjectsAndReturnsThem(t *testing.T) {
	s := registrytest.Start(t, set())
	for name, labels := range map[string]string{"a": "{fate: goes}", "b": "{fate: goes}, finalizers: [x/y]", "c": "{fate: goes}", "d": "{fate: stays}"} {
		s.Do(http.MethodPost, sets, fmt.Sprintf("{metadata: {name: %s, labels: %s}}", name, labels)).Want(http.StatusCreated)
	}
	got := s.Do(http.MethodDelete, sets+"?labelSelector=fate%3Dgoes", nil).Want(http.StatusOK)
	if items, ok := got.Field("items").([]any); !ok || len(items) != 3 {
		t.Errorf("answered with %s", got.Body)
	}
	var left []string
	list, err := s.Do(http.MethodGet, sets, nil).Object().ToList()
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range list.Items {
		left = append(left, fmt.Sprintf("%s %v", item.GetName(), item.GetDeletionTimestamp() != nil))
	}
	slices.Sort(left)
	if got := strings.Join(left, ", "); got != "b true, d false" {
		t.Errorf("left are (terminating?): %s", got)
	}
}

func TestAGracefulDeletionLeavesTimeToEnd(t *testing.T) {
	for rule, test := range map[string]struct {
		body    string
		pending bool
		period  float64
	}{
		"the kind's own period":              {``, true, 30},
		"the period that the client asked":   {`{gracePeriodSeconds: 5}`, true, 5},
		"a negative period counts as second": {`{gracePeriodSeconds: -7}`, true, 1},
		"none":                               {`{gracePeriodSeconds: 0}`, false, 0},
	} {
		t.Run(rule, func(t *testing.T) {
			d := set()
			d.GracePeriod = func(_ *appsv1.Deployment, requested *int64) int64 {
				if requested != nil {
					return *requested
				}
				return 30
			}
			s := registrytest.Start(t, d)
			s.Do(http.MethodPost, sets, setBody).Want(http.StatusCreated)
			var body any
			if test.body != "" {
				body = test.body
			}
			answer := s.Do(http.MethodDelete, aSet, body).Want(http.StatusOK, `"kind":"Deployment"`)
			now := s.Do(http.MethodGet, aSet, nil)
			if !test.pending {
				now.Want(http.StatusNotFound)
				return
			}
			if answer.Field("metadata", "deletionGracePeriodSeconds") != test.period || now.Field("metadata", "deletionGracePeriodSeconds") != test.period {
				t.Errorf("answered %s, stored %s", answer.Body, now.Body)
			}
			if now.Field("metadata", "generation") != float64(2) {
				t.Errorf("the generation is %v", now.Field("metadata", "generation"))
			}
			// A shorter period ends it sooner; a period of 0 ends it at once.
			s.Do(http.MethodDelete, aSet, `{gracePeriodSeconds: 60}`).Want(http.StatusOK)
			if got := s.Do(http.MethodGet, aSet, nil).Field("metadata", "deletionGracePeriodSeconds"); got != test.period {
				t.Errorf("the period was extended to %v", got)
			}
			s.Do(http.MethodDelete, aSet, `{gracePeriodSeconds: 0}`).Want(http.StatusOK)
			s.Do(http.MethodGet, aSet, nil).Want(http.StatusNotFound)
		})
	}
}

func TestAnObjectWithATTLHasALease(t *testing.T) {
	d := set()
	d.TTL = func(*resource.Env) time.Duration { return time.Hour }
	s := registrytest.Start(t, d)
	s.Do(http.MethodPost, sets, setBody).Want(http.StatusCreated)
	client := s.Backend.Client()
	leases, err := client.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(leases.Leases) != 1 {
		t.Fatalf("%d leases", len(leases.Leases))
	}
	lease, err := client.TimeToLive(t.Context(), leases.Leases[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	// Leases are shared by objects that end at about the same time.
	if lease.GrantedTTL < 3600 || lease.GrantedTTL > 3600+5*60 {
		t.Errorf("the lease ends after %d s", lease.GrantedTTL)
	}
	stored, err := client.Get(t.Context(), "/registry/apps/deployments/default/a")
	if err != nil {
		t.Fatal(err)
	}
	if len(stored.Kvs) != 1 || stored.Kvs[0].Lease != int64(leases.Leases[0].ID) {
		t.Errorf("stored as %v", stored.Kvs)
	}
}
