package authorization

import (
	"testing"
	"testing/synctest"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

func TestAStartWaitsUntilTheAuthorizerKnowsTheRoles(t *testing.T) {
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	rbac := factory.Rbac().V1()
	r := &Roles{}
	r.Follow(rbac)
	synctest.Test(t, func(t *testing.T) {
		known := make(chan struct{})
		go func() {
			defer close(known)
			r.AwaitRoles(t.Context(), []DefaultRole{{Name: "a", Binding: "a"}, {Name: "b", Namespace: "ns"}})
		}()
		isKnown := func() bool {
			time.Sleep(time.Second)
			select {
			case <-known:
				return true
			default:
				return false
			}
		}
		meta := metav1.ObjectMeta{Name: "a"}
		if isKnown() {
			t.Error("neither the role nor the binding is there")
		}
		_ = rbac.ClusterRoles().Informer().GetStore().Add(&rbacv1.ClusterRole{ObjectMeta: meta})
		if isKnown() {
			t.Error("the binding is not there")
		}
		_ = rbac.ClusterRoleBindings().Informer().GetStore().Add(&rbacv1.ClusterRoleBinding{ObjectMeta: meta})
		if !isKnown() {
			t.Error("it does not end")
		}
	})
}
