package controllers

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("a storage version migration", func() {
	It("stores all custom resources in the storage version, also when the manager is killed, and one after the other", func(ctx SpecContext) {
		const resource, objects = "movers.migration.example.com", 300
		ns := newNamespace(ctx)
		definition := func(stored string) string {
			version := func(name string) string {
				return fmt.Sprintf("{name: %s, served: true, storage: %v, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}", name, name == stored)
			}
			return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s}
spec: {group: migration.example.com, scope: Namespaced, names: {plural: movers, kind: Mover}, versions: [%s, %s]}
`, resource, version("v1"), version("v2"))
		}
		define(ctx, resource, definition("v1"))
		manifests := ""
		for i := range objects {
			manifests += fmt.Sprintf("---\n{apiVersion: migration.example.com/v1, kind: Mover, metadata: {name: m%d, namespace: %s}}\n", i, ns)
		}
		_, errOut, err := kubectl.Run(ctx, manifests, "create", "-f", "-")
		Expect(err).NotTo(HaveOccurred(), errOut)
		_, errOut, err = kubectl.Run(ctx, definition("v2"), "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred(), errOut)
		stored := func() string { return run(ctx, "get", "crd", resource, "-o", "jsonpath={.status.storedVersions}") }
		Eventually(stored).Should(Equal(`["v1","v2"]`))

		migrate(ctx, "first", "migration.example.com", "movers")
		migrate(ctx, "second", "migration.example.com", "movers")
		killManager(ctx)
		startManager(ctx)
		Eventually(ended(ctx, "first")).Should(Equal("Succeeded: Migration completed"))
		Expect(stored()).To(Equal(`["v2"]`))
		Eventually(ended(ctx, "second")).Should(Equal("Succeeded: Migration completed"))
		Eventually(func() string {
			return run(ctx, "get", "crd", resource, "-o", `jsonpath={.status.conditions[?(@.type=="StorageMigrating")].message}`)
		}).Should(Equal("The migration has succeeded and the stored versions have been updated"))
		Expect(message(ctx, "first", storagemigrationv1.MigrationRunning)).To(Equal("Migration completed"))

		By("v1 is no longer needed")
		run(ctx, "patch", "crd", resource, "--type=json", `--patch=[{"op": "remove", "path": "/spec/versions/0"}]`)
		Expect(run(ctx, "-n", ns, "get", "movers.v2.migration.example.com", "m0", "m299", "-o", "name")).To(Equal("mover.migration.example.com/m0\nmover.migration.example.com/m299\n"))
	})

	It("of built-in kinds writes no object that is stored in its present form, and needs no rights of roles", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		Expect(client.Create(ctx, configMap(ns, "a"))).To(Succeed())
		version := run(ctx, "-n", ns, "get", "configmap", "a", "-o", "jsonpath={.metadata.resourceVersion}")
		migrate(ctx, "configmaps", "", "configmaps")
		migrate(ctx, "roles", "rbac.authorization.k8s.io", "clusterroles")
		for _, name := range []string{"configmaps", "roles"} {
			Eventually(ended(ctx, name)).Should(Equal("Succeeded: Migration completed"))
		}
		Expect(run(ctx, "-n", ns, "get", "configmap", "a", "-o", "jsonpath={.metadata.resourceVersion}")).To(Equal(version))
	})

	It("of a resource that cannot be changed fails", func(ctx SpecContext) {
		migrate(ctx, "reviews", "authorization.k8s.io", "subjectaccessreviews")
		Eventually(ended(ctx, "reviews")).Should(Equal(`Failed: resource "authorization.k8s.io/v1, Resource=subjectaccessreviews" does not support discovery operations: [update patch list]`))
	})
})

// migrate creates a migration, which is deleted after the spec.
func migrate(ctx SpecContext, name, group, resource string) {
	GinkgoHelper()
	m := &storagemigrationv1.StorageVersionMigration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	m.Spec.Resource = metav1.GroupResource{Group: group, Resource: resource}
	Expect(client.Create(ctx, m)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(ctrlclient.IgnoreNotFound(client.Delete(ctx, m))).To(Succeed()) })
}

// ended returns how a migration has ended, when it is no longer marked as running.
func ended(ctx SpecContext, name string) func() (string, error) {
	return func() (string, error) {
		m := &storagemigrationv1.StorageVersionMigration{}
		if err := client.Get(ctx, ctrlclient.ObjectKey{Name: name}, m); err != nil {
			return "", err
		}
		text := ""
		for _, c := range m.Status.Conditions {
			switch {
			case c.Status != metav1.ConditionTrue:
			case c.Type == string(storagemigrationv1.MigrationRunning):
				return "", nil
			default:
				text = c.Type + ": " + c.Message
			}
		}
		return text, nil
	}
}

// message returns the message of a migration's condition.
func message(ctx SpecContext, name string, condition storagemigrationv1.MigrationConditionType) string {
	GinkgoHelper()
	return run(ctx, "get", "storageversionmigrations", name, "-o", fmt.Sprintf("jsonpath={.status.conditions[?(@.type==%q)].message}", condition))
}
