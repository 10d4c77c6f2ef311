package serviceaccounttoken

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// account returns the account "robot" with UID 1, which refers to secrets.
func account(secrets ...string) *corev1.ServiceAccount {
	a := &corev1.ServiceAccount{
		ObjectMeta:       metav1.ObjectMeta{Namespace: "n", Name: "robot", UID: "1"},
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "s"}},
	}
	for _, name := range secrets {
		a.Secrets = append(a.Secrets, corev1.ObjectReference{Name: name})
	}
	return a
}

// changed returns a secret after a change.
func changed(s *corev1.Secret, change func(s *corev1.Secret)) *corev1.Secret {
	change(s)
	return s
}

func TestTheReferenceOfAnAccountToADeletedTokenIsRemoved(t *testing.T) {
	others := changed(secret("2"), func(s *corev1.Secret) { s.Annotations[corev1.ServiceAccountNameKey] = "other" })
	opaque := changed(secret("1"), func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque })
	for _, test := range []struct {
		rule    string
		uid     types.UID // of the deleted token
		cached  *corev1.Secret
		account *corev1.ServiceAccount
		want    string
		written bool
	}{
		{rule: "other references stay, in their order", uid: "1", account: account("b", "s", "a"), want: "b a", written: true},
		{rule: "the last one is removed, too", uid: "1", account: account("s"), written: true},
		{rule: "a token that had no UID yet is of any account of the name", account: account("s"), written: true},
		{rule: "a later account of the name keeps its reference", uid: "0", account: account("s"), want: "s"},
		{rule: "an account without the reference is not written", uid: "1", account: account("a"), want: "a"},
		{rule: "an account that does not exist has none", uid: "1"},
		{rule: "a token that was created again is referred to", uid: "1", cached: secret(""), account: account("s"), want: "s"},
		{rule: "so is one that is complete again", cached: secret("1"), account: account("s"), want: "s"},
		{rule: "the token of another account is not", uid: "1", cached: others, account: account("s"), written: true},
		{rule: "nor a secret that is not a token", uid: "1", cached: opaque, account: account("s"), written: true},
	} {
		t.Run(test.rule, func(t *testing.T) {
			objects := fake.NewClientBuilder().WithScheme(scheme.Scheme)
			if test.cached != nil {
				objects.WithObjects(test.cached)
			}
			if test.account != nil {
				objects.WithObjects(test.account)
			}
			written := false
			c := interceptor.NewClient(objects.Build(), interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
					written = true
					return c.Patch(ctx, obj, patch, opts...)
				},
			})
			r := &referenceReconciler{client: c, live: c}
			if _, err := r.Reconcile(t.Context(), reference{namespace: "n", secret: "s", account: "robot", uid: test.uid}); err != nil {
				t.Fatal(err)
			}
			if test.account != nil && references(t, c) != test.want {
				t.Errorf("the account refers to %q, want %q", references(t, c), test.want)
			}
			if written != test.written {
				t.Errorf("the account is written: %t, want %t", written, test.written)
			}
		})
	}
}

// references returns the names of the secrets to which the account "robot" refers.
func references(t *testing.T, c client.Client) string {
	t.Helper()
	a := &corev1.ServiceAccount{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: "robot"}, a); err != nil {
		t.Fatal(err)
	}
	if len(a.ImagePullSecrets) != 1 {
		t.Errorf("the pull secrets are %v", a.ImagePullSecrets)
	}
	var names []string
	for _, s := range a.Secrets {
		names = append(names, s.Name)
	}
	return strings.Join(names, " ")
}

func TestAReferenceThatIsAddedWhileAnotherIsRemovedStays(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(account("s")).Build()
	reads := 0
	live := interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := c.Get(ctx, key, obj, opts...); err != nil {
				return err
			}
			if reads++; reads > 1 {
				return nil
			}
			return c.Patch(ctx, account(), client.RawPatch(types.MergePatchType, []byte(`{"secrets": [{"name": "s"}, {"name": "added"}]}`)))
		},
	})
	r := &referenceReconciler{client: c, live: live}
	deleted := reference{namespace: "n", secret: "s", account: "robot", uid: "1"}
	if _, err := r.Reconcile(t.Context(), deleted); !apierrors.IsConflict(err) {
		t.Fatalf("got %v, want a conflict", err)
	}
	if _, err := r.Reconcile(t.Context(), deleted); err != nil {
		t.Fatal(err)
	}
	if got := references(t, c); got != "added" {
		t.Errorf("the account refers to %q", got)
	}
}

func TestTheReferencesToDeletedAndChangedTokensAreChecked(t *testing.T) {
	opaque := func() *corev1.Secret {
		return changed(secret("1"), func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque })
	}
	moved := changed(secret("2"), func(s *corev1.Secret) { s.Annotations[corev1.ServiceAccountNameKey] = "other" })
	for _, test := range []struct {
		rule        string
		before, now *corev1.Secret
		want        []reference
	}{
		{"a deleted token", secret("1"), nil, []reference{{"n", "s", "robot", "1"}}},
		{"one without a UID", secret(""), nil, []reference{{"n", "s", "robot", ""}}},
		{"one that another account has now", secret("1"), moved, []reference{{"n", "s", "robot", "1"}}},
		{"one whose place another secret has", secret("1"), opaque(), []reference{{"n", "s", "robot", "1"}}},
		{"not one that is completed", secret(""), secret("1", "token=signed"), nil},
		{"not a deleted secret that is not a token", opaque(), nil, nil},
		{"nor a change of one", opaque(), moved, nil},
	} {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reference]())
		defer queue.ShutDown()
		handler := referenceEvents().Handler
		if test.now == nil {
			handler.Delete(t.Context(), event.DeleteEvent{Object: test.before}, queue)
		} else {
			handler.Update(t.Context(), event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.now}, queue)
		}
		var got []reference
		for queue.Len() > 0 {
			request, _ := queue.Get()
			got = append(got, request)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v are checked, want %v", test.rule, got, test.want)
		}
	}
}
