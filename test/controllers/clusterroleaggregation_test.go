package controllers

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("clusterroleaggregation", func() {
	It("gives a role the rules of the roles that it selects, while they are there", func(ctx SpecContext) {
		ns := newNamespace(ctx) // its name makes those of the roles unique
		label := map[string]string{"example.com/aggregate-to-" + ns: "true"}
		rule := func(resource string) rbacv1.PolicyRule {
			return rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{"example.com"}, Resources: []string{resource}}
		}
		make := func(role *rbacv1.ClusterRole) *rbacv1.ClusterRole {
			GinkgoHelper()
			role.Name = ns + "-" + role.Name
			Expect(client.Create(ctx, role)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(ctrlclient.IgnoreNotFound(client.Delete(ctx, role))).To(Succeed()) })
			return role
		}
		aggregated := make(&rbacv1.ClusterRole{
			ObjectMeta:      metav1.ObjectMeta{Name: "all"},
			AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: label}}},
		})
		rules := func() ([]rbacv1.PolicyRule, error) {
			role := &rbacv1.ClusterRole{}
			err := client.Get(ctx, ctrlclient.ObjectKeyFromObject(aggregated), role)
			return role.Rules, err
		}
		a := make(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: label}, Rules: []rbacv1.PolicyRule{rule("gadgets")}})
		Eventually(rules).Should(ConsistOf(rule("gadgets")))
		b := make(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: label}, Rules: []rbacv1.PolicyRule{rule("widgets")}})
		Eventually(rules).Should(ConsistOf(rule("gadgets"), rule("widgets")))
		Expect(client.Delete(ctx, a)).To(Succeed())
		Eventually(rules).Should(ConsistOf(rule("widgets")))

		By("following the labels and the rules of the roles")
		change := func(role *rbacv1.ClusterRole, patch string) {
			GinkgoHelper()
			Expect(client.Patch(ctx, role, ctrlclient.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
		}
		change(b, `{"metadata": {"labels": null}}`)
		Eventually(rules).Should(BeEmpty())
		change(b, `{"metadata": {"labels": {"example.com/aggregate-to-`+ns+`": "false"}}}`)
		change(b, `{"metadata": {"labels": {"example.com/aggregate-to-`+ns+`": "true"}}, "rules": [{"verbs": ["get"], "apiGroups": ["example.com"], "resources": ["gizmos"]}]}`)
		Eventually(rules).Should(ConsistOf(rule("gizmos")))

		By("undoing what is written into the aggregated role")
		change(aggregated, `{"rules": [{"verbs": ["get"], "apiGroups": ["example.com"], "resources": ["secrets"]}]}`)
		Eventually(rules).Should(ConsistOf(rule("gizmos")))
	})
})
